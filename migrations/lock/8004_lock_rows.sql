-- Rows for the kind `mysql-row` to lock; they say nothing. The reaper takes away those that were
-- made long ago and that nobody holds; they are made again on demand.
CREATE TABLE IF NOT EXISTS lock_rows (
  name    VARBINARY(512) NOT NULL COMMENT 'of the lock',
  made_at DATETIME(6) NOT NULL COMMENT 'UTC, by the database',
  PRIMARY KEY (name)
) ENGINE = InnoDB COMMENT = 'locks of the kind mysql-row';
