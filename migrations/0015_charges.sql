-- Charges whose end is not known yet. The row is written before the payment provider is asked, and
-- goes with the order's payment, or when the provider has declined or given back the money. So no
-- money is forgotten that was taken by somebody who was cut off. (A table of its own and no column
-- of `orders`: there is no cheap way to find the few among millions that have a value.)
CREATE TABLE IF NOT EXISTS charges (
  order_id BIGINT UNSIGNED NOT NULL,
  asked_at DATETIME(3) NOT NULL COMMENT 'UTC, when the provider was last asked',
  PRIMARY KEY (order_id)
) ENGINE = InnoDB COMMENT = 'payments under way';
