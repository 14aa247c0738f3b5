-- How often the queue of a voucher was opened in Redis. Each opening raises the epoch, and orders
-- of the queued path are written only under the epoch in which they were admitted: whatever was
-- admitted by a Redis that has lost its data since is kept out. The row is locked shared by each
-- such order until its commit, so that an opening reads a stock that none of them changes any more.
CREATE TABLE IF NOT EXISTS sale_epochs (
  voucher_id BIGINT UNSIGNED NOT NULL,
  epoch      BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (voucher_id),
  CONSTRAINT fk_sale_epochs_voucher FOREIGN KEY (voucher_id) REFERENCES vouchers (id)
    ON DELETE CASCADE
) ENGINE = InnoDB COMMENT = 'openings of the queue of a voucher';
