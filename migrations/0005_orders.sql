-- Orders. The unique key is the last word on "one voucher per person". There are no foreign keys:
-- an order would lock its parents' rows on the hottest path; deleting a voucher checks instead.
CREATE TABLE IF NOT EXISTS orders (
  id          BIGINT UNSIGNED NOT NULL COMMENT 'seconds since 2022 and a counter, see OrderId',
  user_id     BIGINT UNSIGNED NOT NULL,
  voucher_id  BIGINT UNSIGNED NOT NULL,
  price_cents BIGINT UNSIGNED NOT NULL COMMENT 'the price at the time',
  created_at  DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  UNIQUE KEY uq_orders_user_voucher (user_id, voucher_id) COMMENT 'one per person; lists a user',
  KEY ix_orders_voucher (voucher_id) COMMENT 'the audit counts a voucher, deleting looks for one'
) ENGINE = InnoDB COMMENT = 'one unit sold to one user';
