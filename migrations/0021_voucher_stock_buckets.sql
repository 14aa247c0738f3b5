-- Parts of the stock of vouchers that one row cannot sell fast enough. The units left of a voucher
-- are those of its row in voucher_stock and those of its rows here, which only a voucher that was
-- created with `stock_buckets` has. Returned units are in voucher_stock.
CREATE TABLE IF NOT EXISTS voucher_stock_buckets (
  voucher_id BIGINT UNSIGNED NOT NULL,
  bucket     TINYINT UNSIGNED NOT NULL COMMENT 'from 0; selected by the id of the buyer',
  stock      INT NOT NULL COMMENT 'units left in this bucket',
  PRIMARY KEY (voucher_id, bucket),
  CONSTRAINT fk_voucher_stock_buckets_voucher FOREIGN KEY (voucher_id) REFERENCES vouchers (id)
) ENGINE = InnoDB COMMENT = 'units left in the buckets of a voucher';
