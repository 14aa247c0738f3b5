-- Makes the tables of orders and stock links to two shards. For the front: a MariaDB with Spider
-- that knows the shards as `shard0` and `shard1`. Run it once, after `seckill migrate` here and on
-- the shards. See docs/shards.md.
--
-- All rows of a voucher lie on one shard, so a purchase is a transaction of one shard. The keys of
-- a link must have the column that chooses the shard; those of the shards are as they were.

-- A link that is made of a table forgets its rows. This stops the script if there are some.
SELECT EXP(710 * (EXISTS (SELECT 1 FROM voucher_stock) OR EXISTS (SELECT 1 FROM orders)))
  AS 'must be 1: there are no vouchers yet';

ALTER TABLE voucher_stock DROP FOREIGN KEY fk_voucher_stock_voucher;

ALTER TABLE voucher_stock ENGINE = SPIDER
  COMMENT = 'wrapper "mysql", table "voucher_stock"'
  PARTITION BY LIST (voucher_id MOD 2) (
    PARTITION shard0 VALUES IN (0) COMMENT = 'srv "shard0"',
    PARTITION shard1 VALUES IN (1) COMMENT = 'srv "shard1"');

ALTER TABLE voucher_stock_buckets DROP FOREIGN KEY fk_voucher_stock_buckets_voucher;

ALTER TABLE voucher_stock_buckets ENGINE = SPIDER
  COMMENT = 'wrapper "mysql", table "voucher_stock_buckets"'
  PARTITION BY LIST (voucher_id MOD 2) (
    PARTITION shard0 VALUES IN (0) COMMENT = 'srv "shard0"',
    PARTITION shard1 VALUES IN (1) COMMENT = 'srv "shard1"');

ALTER TABLE stock_grants DROP FOREIGN KEY fk_stock_grants_voucher;

ALTER TABLE stock_grants
  DROP PRIMARY KEY, DROP COLUMN id, ENGINE = SPIDER
  COMMENT = 'wrapper "mysql", table "stock_grants"'
  PARTITION BY LIST (voucher_id MOD 2) (
    PARTITION shard0 VALUES IN (0) COMMENT = 'srv "shard0"',
    PARTITION shard1 VALUES IN (1) COMMENT = 'srv "shard1"');

ALTER TABLE sale_epochs DROP FOREIGN KEY fk_sale_epochs_voucher;

ALTER TABLE sale_epochs ENGINE = SPIDER
  COMMENT = 'wrapper "mysql", table "sale_epochs"'
  PARTITION BY LIST (voucher_id MOD 2) (
    PARTITION shard0 VALUES IN (0) COMMENT = 'srv "shard0"',
    PARTITION shard1 VALUES IN (1) COMMENT = 'srv "shard1"');

ALTER TABLE orders
  DROP PRIMARY KEY, ADD PRIMARY KEY (id, voucher_id), ENGINE = SPIDER
  COMMENT = 'wrapper "mysql", table "orders"'
  PARTITION BY LIST (voucher_id MOD 2) (
    PARTITION shard0 VALUES IN (0) COMMENT = 'srv "shard0"',
    PARTITION shard1 VALUES IN (1) COMMENT = 'srv "shard1"');

ALTER TABLE tickets
  DROP KEY uq_tickets_ticket, ADD UNIQUE KEY uq_tickets_ticket (ticket, voucher_id),
  ENGINE = SPIDER
  COMMENT = 'wrapper "mysql", table "tickets"'
  PARTITION BY LIST (voucher_id MOD 2) (
    PARTITION shard0 VALUES IN (0) COMMENT = 'srv "shard0"',
    PARTITION shard1 VALUES IN (1) COMMENT = 'srv "shard1"');

ALTER TABLE dead_letters
  DROP PRIMARY KEY, ADD PRIMARY KEY (ticket, voucher_id), ENGINE = SPIDER
  COMMENT = 'wrapper "mysql", table "dead_letters"'
  PARTITION BY LIST (voucher_id MOD 2) (
    PARTITION shard0 VALUES IN (0) COMMENT = 'srv "shard0"',
    PARTITION shard1 VALUES IN (1) COMMENT = 'srv "shard1"');

ALTER TABLE unreadable_entries ENGINE = SPIDER
  COMMENT = 'wrapper "mysql", table "unreadable_entries"'
  PARTITION BY LIST (voucher_id MOD 2) (
    PARTITION shard0 VALUES IN (0) COMMENT = 'srv "shard0"',
    PARTITION shard1 VALUES IN (1) COMMENT = 'srv "shard1"');
