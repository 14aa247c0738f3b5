-- The last fencing token of each name, for kinds that make none themselves. The reaper takes away
-- what was not used for long and keeps the token in lock_floors.
CREATE TABLE IF NOT EXISTS lock_tokens (
  name    VARBINARY(512) NOT NULL COMMENT 'of the lock',
  token   BIGINT UNSIGNED NOT NULL COMMENT 'rises with every call',
  used_at DATETIME(6) NOT NULL COMMENT 'UTC, by the database',
  PRIMARY KEY (name)
) ENGINE = InnoDB COMMENT = 'fencing tokens';
