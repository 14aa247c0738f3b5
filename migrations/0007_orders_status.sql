-- The rest of an order's life. Orders from before this step count as paid: selling was all there
-- was, and no time-out may take them back. The key by voucher begins as the one it replaces did, so
-- an order still has three keys to be written to; it also counts a voucher's orders by status, and
-- finds the unpaid ones by age.
ALTER TABLE orders
  ADD COLUMN status ENUM('unpaid', 'paid', 'cancelled') NOT NULL DEFAULT 'paid'
    COMMENT 'a cancelled order has returned its unit; its user may not buy again',
  ADD COLUMN settled_at DATETIME(3) NULL COMMENT 'UTC, when it was paid or cancelled',
  ADD COLUMN cancelled_by ENUM('buyer', 'time_out') NULL,
  DROP KEY ix_orders_voucher,
  ADD KEY ix_orders_voucher_status (voucher_id, status, created_at)
    COMMENT 'the audit counts a voucher, deleting looks for one, the time-out for old unpaid ones';
