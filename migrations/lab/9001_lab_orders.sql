-- Orders of the laboratory's unguarded sale: no unique key, so that a lock that fails shows.
CREATE TABLE IF NOT EXISTS lab_orders (
  id          BIGINT UNSIGNED NOT NULL COMMENT 'as in orders',
  user_id     BIGINT UNSIGNED NOT NULL,
  voucher_id  BIGINT UNSIGNED NOT NULL,
  price_cents BIGINT UNSIGNED NOT NULL COMMENT 'the price at the time',
  created_at  DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  KEY ix_lab_orders_user_voucher (user_id, voucher_id) COMMENT 'the naive count; not unique',
  KEY ix_lab_orders_voucher (voucher_id) COMMENT 'the audit counts a voucher'
) ENGINE = InnoDB COMMENT = 'orders of the unguarded sale (laboratory)';
