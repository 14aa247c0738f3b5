-- Prepares the schema of a shard, after `seckill migrate`: its vouchers are rows of the front, so
-- nothing here may refer to them. May run again. See docs/shards.md.
ALTER TABLE voucher_stock DROP FOREIGN KEY IF EXISTS fk_voucher_stock_voucher;
ALTER TABLE voucher_stock_buckets DROP FOREIGN KEY IF EXISTS fk_voucher_stock_buckets_voucher;
ALTER TABLE stock_grants DROP FOREIGN KEY IF EXISTS fk_stock_grants_voucher;
ALTER TABLE sale_epochs DROP FOREIGN KEY IF EXISTS fk_sale_epochs_voucher;
