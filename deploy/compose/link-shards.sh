#!/bin/sh
# Prepares the shards of shards.yml, and links the tables of the front to them, once. See
# docs/shards.md, steps 3 and 4.
set -eu
export MYSQL_PWD="$MYSQL_PASSWORD"
for shard in shard0 shard1; do
  mariadb -h "$shard" -u seckill seckill </shards/shard.sql
done
# The last table that front.sql links.
linked=$(mariadb -h mysql -u seckill -NBe "SELECT COUNT(*) FROM information_schema.TABLES
  WHERE TABLE_SCHEMA = 'seckill' AND TABLE_NAME = 'unreadable_entries' AND ENGINE = 'SPIDER'")
[ "$linked" = 1 ] || mariadb -h mysql -u seckill seckill </shards/front.sql
