-- What each running replica does with its locks. Replicas that lock differently do not exclude
-- each other, so one that differs from those before it is not ready.
CREATE TABLE IF NOT EXISTS replicas (
  id         CHAR(36) CHARACTER SET ascii NOT NULL COMMENT 'UUID of the process',
  name       VARCHAR(64) CHARACTER SET ascii NOT NULL COMMENT 'X-Replica',
  settings   VARCHAR(100) CHARACTER SET ascii NOT NULL COMMENT 'lock kind, scope, guards, writer',
  started_at DATETIME(3) NOT NULL COMMENT 'UTC, by the database',
  seen_at    DATETIME(3) NOT NULL COMMENT 'UTC, by the database, renewed every few seconds',
  PRIMARY KEY (id)
) ENGINE = InnoDB COMMENT = 'running replicas and how they lock';
