-- The last run of each command under `seckill lock run --once-per`, where its lock is not in Redis.
-- That command makes the table itself if it is missing. Rows are removed after their window.
CREATE TABLE IF NOT EXISTS run_records (
  name       VARBINARY(512) NOT NULL COMMENT 'of the lock',
  run        CHAR(36) CHARACTER SET ascii NOT NULL COMMENT 'id of the run (a UUID)',
  host       VARCHAR(255) NOT NULL COMMENT 'of the run, for people',
  started_at DATETIME(6) NOT NULL COMMENT 'UTC, by the database',
  expires_at DATETIME(6) NOT NULL COMMENT 'UTC, by the database: the window is over',
  PRIMARY KEY (name),
  KEY ix_run_records_expires (expires_at) COMMENT 'rows that are over are removed'
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COMMENT = 'last runs of commands under a lock'
