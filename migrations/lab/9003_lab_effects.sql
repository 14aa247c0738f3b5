-- What fenced holders did, each line in the transaction of its order (`--lab --fenced`). Numbers
-- are drawn while the voucher's stock row is locked, so they rise in the order of its commits.
CREATE TABLE IF NOT EXISTS lab_effects (
  seq        BIGINT UNSIGNED NOT NULL AUTO_INCREMENT COMMENT 'place in the order of commits',
  voucher_id BIGINT UNSIGNED NOT NULL,
  resource   VARBINARY(640) NOT NULL COMMENT 'what the lock protects, as in lock_fence',
  token      BIGINT UNSIGNED NOT NULL COMMENT 'of the lock under which the order was written',
  order_id   BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (seq),
  KEY ix_lab_effects_voucher (voucher_id, seq) COMMENT 'the judge reads a voucher'
) ENGINE = InnoDB COMMENT = 'effects of fenced holders (laboratory)';
