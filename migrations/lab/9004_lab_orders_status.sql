-- What the orders of the real sale have as well.
ALTER TABLE lab_orders
  ADD COLUMN status ENUM('unpaid', 'paid', 'cancelled') NOT NULL DEFAULT 'unpaid',
  ADD COLUMN settled_at DATETIME(3) NULL COMMENT 'UTC, when it was paid or cancelled',
  ADD COLUMN cancelled_by ENUM('buyer', 'time_out') NULL,
  DROP KEY ix_lab_orders_voucher,
  ADD KEY ix_lab_orders_voucher_status (voucher_id, status, created_at) COMMENT 'as in orders';
