-- Stock of the laboratory's unguarded sale, written as "what I read, less one".
CREATE TABLE IF NOT EXISTS lab_stock (
  voucher_id BIGINT UNSIGNED NOT NULL,
  stock      INT NOT NULL COMMENT 'units left',
  PRIMARY KEY (voucher_id)
) ENGINE = InnoDB COMMENT = 'stock of the unguarded sale (laboratory)';
