-- Every unit that was ever put into a voucher's stock. Their sum is the initial stock of the
-- invariant that every audit checks: stock left + orders = sum of grants.
CREATE TABLE IF NOT EXISTS stock_grants (
  id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  voucher_id BIGINT UNSIGNED NOT NULL,
  units      INT UNSIGNED NOT NULL,
  PRIMARY KEY (id),
  KEY ix_stock_grants_voucher (voucher_id) COMMENT 'the audit sums one voucher',
  CONSTRAINT fk_stock_grants_voucher FOREIGN KEY (voucher_id) REFERENCES vouchers (id)
) ENGINE = InnoDB COMMENT = 'units put on sale, for the audit';
