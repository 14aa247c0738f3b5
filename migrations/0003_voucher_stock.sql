-- What is left of a voucher: the hot row, as narrow as can be. It is signed, and nothing but the
-- condition `stock >= 1` of the order's own update keeps it from falling below zero: that
-- condition is what this project demonstrates.
CREATE TABLE IF NOT EXISTS voucher_stock (
  voucher_id BIGINT UNSIGNED NOT NULL,
  stock      INT NOT NULL COMMENT 'units left',
  PRIMARY KEY (voucher_id),
  CONSTRAINT fk_voucher_stock_voucher FOREIGN KEY (voucher_id) REFERENCES vouchers (id)
) ENGINE = InnoDB COMMENT = 'units left, one hot row a voucher';
