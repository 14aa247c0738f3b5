-- Who holds a lock of the kind `mysql-table`, or held it last. A free row stays for a while, so
-- that its token goes on rising; the reaper takes it away and keeps the token in lock_floors.
-- There is no second index: every statement finds its rows by the primary key, and in its order.
CREATE TABLE IF NOT EXISTS lock_holders (
  name        VARBINARY(512) NOT NULL COMMENT 'of the lock',
  owner       VARBINARY(128) NULL COMMENT 'NULL: released',
  host        VARCHAR(255) NOT NULL COMMENT 'of the owner, for people',
  pid         INT UNSIGNED NOT NULL COMMENT 'of the owner, for people',
  holds       VARBINARY(2112) NOT NULL COMMENT 'ids of the holds of this owner, 33 bytes each',
  hold_count  INT UNSIGNED AS (LENGTH(holds) DIV 33) VIRTUAL COMMENT 'more than 1: re-entered',
  released    VARBINARY(33) NULL COMMENT 'the hold released last: it is never acquired again',
  token       BIGINT UNSIGNED NOT NULL COMMENT 'rises with every new ownership, not on re-entry',
  acquired_at DATETIME(6) NOT NULL COMMENT 'UTC, by the database',
  expires_at  DATETIME(6) NOT NULL COMMENT 'UTC, by the database: free from then on',
  PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COMMENT = 'locks of the kind mysql-table';
