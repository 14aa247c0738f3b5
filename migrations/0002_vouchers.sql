-- What a voucher is. Read by everybody, written by admins only: the stock, which every order
-- changes, has a table of its own so that readers of this one never meet the hot row.
CREATE TABLE IF NOT EXISTS vouchers (
  id               BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  title            VARCHAR(100) NOT NULL,
  description      VARCHAR(1000) NOT NULL,
  price_cents      BIGINT UNSIGNED NOT NULL COMMENT 'what it costs',
  face_value_cents BIGINT UNSIGNED NOT NULL COMMENT 'what it is worth',
  starts_at        DATETIME(3) NOT NULL COMMENT 'UTC, first moment of the sale',
  ends_at          DATETIME(3) NOT NULL COMMENT 'UTC, first moment after the sale',
  status           ENUM('draft', 'on_sale') NOT NULL DEFAULT 'draft' COMMENT 'drafts: admins only',
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COMMENT = 'what is sold';
