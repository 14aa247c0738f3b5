-- Admitted purchases whose order could not be written again and again, until somebody replays them.
CREATE TABLE IF NOT EXISTS dead_letters (
  ticket      BINARY(16) NOT NULL COMMENT 'UUIDv7, see TicketId',
  user_id     BIGINT UNSIGNED NOT NULL,
  voucher_id  BIGINT UNSIGNED NOT NULL,
  price_cents BIGINT UNSIGNED NOT NULL COMMENT 'the price at admission',
  reason      VARCHAR(64) CHARACTER SET ascii NOT NULL COMMENT 'how the last try ended',
  died_at     DATETIME(3) NOT NULL COMMENT 'UTC, by the database',
  PRIMARY KEY (ticket)
) ENGINE = InnoDB COMMENT = 'admitted purchases that nobody could write';
