-- Which request has made, paid or cancelled an order: written in that transaction, and what a
-- repeated Idempotency-Key is answered from. The primary key grows with the orders' own, so it is
-- cheap to write, and old keys stand at its beginning, where they are cleaned away.
CREATE TABLE IF NOT EXISTS idempotency_keys (
  order_id    BIGINT UNSIGNED NOT NULL,
  action      ENUM('purchase', 'pay', 'cancel') NOT NULL,
  user_id     BIGINT UNSIGNED NOT NULL,
  request_key BINARY(16) NOT NULL COMMENT 'first half of the SHA-256 of the header',
  created_at  DATETIME NOT NULL COMMENT 'UTC; kept for at least 24 h',
  PRIMARY KEY (order_id, action),
  UNIQUE KEY uq_idempotency_keys_user_key (user_id, request_key) COMMENT 'one use each, per user'
) ENGINE = InnoDB COMMENT = 'requests that had an effect';
