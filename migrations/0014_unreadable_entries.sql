-- Entries of a queue that nobody could read, as far as they could be written down: for operators.
CREATE TABLE IF NOT EXISTS unreadable_entries (
  voucher_id BIGINT UNSIGNED NOT NULL,
  entry      VARCHAR(64) CHARACTER SET ascii NOT NULL COMMENT 'its id in the stream',
  ticket     BINARY(16) NULL COMMENT 'the ticket that it names, if it does',
  fields     VARCHAR(2000) CHARACTER SET ascii NOT NULL COMMENT 'or the beginning of them',
  died_at    DATETIME(3) NOT NULL COMMENT 'UTC, by the database',
  PRIMARY KEY (voucher_id, entry)
) ENGINE = InnoDB COMMENT = 'entries that nobody could read';
