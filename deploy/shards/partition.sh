#!/bin/sh
# Prints the statements that spread the links of front.sql over that many shards, `shard0` and so
# on. For a front with fewer or more of them; see docs/shards.md. No row moves by it.
# Usage: deploy/shards/partition.sh SHARDS | mariadb ... seckill
# Exit codes: 0 printed, 2 SHARDS is no number from 2 to 64, or front.sql is missing.
set -eu
shards=${1-}
case $shards in *[!0-9]* | '' | 0* | ???*) shards=0 ;; esac
[ "$shards" -ge 2 ] && [ "$shards" -le 64 ] ||
    { echo "partition: SHARDS must be a number from 2 to 64" >&2; exit 2; }
front=$(dirname "$0")/front.sql
[ -r "$front" ] || { echo "partition: $front is missing" >&2; exit 2; }
for table in $(sed -nE 's/^ALTER TABLE ([a-z_]+).*/\1/p' "$front" | sort -u); do
    separator=
    printf 'ALTER TABLE %s PARTITION BY LIST (voucher_id MOD %s) (' "$table" "$shards"
    for shard in $(seq 0 $((shards - 1))); do
        printf '%s\n  PARTITION shard%s VALUES IN (%s) COMMENT = '\''srv "shard%s"'\' \
            "$separator" "$shard" "$shard" "$shard"
        separator=,
    done
    printf ');\n'
done
