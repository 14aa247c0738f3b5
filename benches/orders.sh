#!/bin/bash
# Orders a second of the service beside those of the bare transaction (bare_order.lua), on one
# private database, in interleaved rounds; a line for each and the medians with their ratios.
# Needs target/release/seckill and loadtest, sysbench, a database server, redis and the client
# `mariadb`. Usage: benches/orders.sh [ROUNDS [SECONDS]]; FLAVOR=mysql takes $MYSQLD.
# BIN is the folder of the programs, ROWS the cells: name:connections:flags of serve.
# Exit codes: 0 measured, 2 something is missing or a row failed.
set -eu -o pipefail

rounds=${1:-5}
seconds=${2:-10}
flavor=${FLAVOR:-mariadb}
bin=${BIN:-target/release}
here=$(cd "$(dirname "$0")" && pwd)
users=${USERS:-250000}
rows=${ROWS:-single:64: grouped:64:--writer=grouped grouped:256:--writer=grouped}
port=${PORT:-$((20000 + RANDOM % 10000))}
work=$(mktemp -d)
pids=()

stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap stop EXIT

die() {
    echo "orders.sh: $*" >&2
    exit 2
}

sql() {
    mariadb --socket="$work/sock" --user=bench --password=bench --skip-column-names "$@"
}

# The settings of testbed's servers: what is acknowledged is on the disk.
start_database() {
    cat >"$work/my.cnf" <<EOF
[mysqld]
datadir = $work/data
socket = $work/sock
pid-file = $work/pid
secure-file-priv = $work
bind-address = 127.0.0.1
port = $port
user = $(id -un)
skip-name-resolve
skip-log-bin
loose-mysqlx = OFF
max_connections = 500
character-set-server = utf8mb4
performance_schema = OFF
innodb_buffer_pool_size = 256M
loose-innodb_log_file_size = 96M
loose-innodb_redo_log_capacity = 96M
innodb_flush_log_at_trx_commit = 1
loose-innodb_snapshot_isolation = OFF
EOF
    printf '%s\n' "CREATE USER IF NOT EXISTS 'bench'@'%' IDENTIFIED BY 'bench';" \
        "GRANT ALL PRIVILEGES ON *.* TO 'bench'@'%';" \
        "CREATE DATABASE IF NOT EXISTS shop;" >"$work/init.sql"
    local server=mariadbd
    if [ "$flavor" = mysql ]; then
        server=${MYSQLD:-$("$here/../deploy/fetch-mysql.sh")}
        "$server" --defaults-file="$work/my.cnf" --initialize-insecure >"$work/log" 2>&1
    else
        mariadb-install-db --defaults-file="$work/my.cnf" --skip-test-db \
            --auth-root-authentication-method=normal >"$work/log" 2>&1
    fi
    "$server" --defaults-file="$work/my.cnf" --init-file="$work/init.sql" >>"$work/log" 2>&1 &
    pids+=($!)
    for _ in $(seq 300); do
        sql shop -e "SELECT 1" >/dev/null 2>&1 && return
        sleep 0.1
    done
    die "the database does not start: $(tail -3 "$work/log")"
}

start_redis() {
    (exec -a redis-server "$(command -v redis-server || command -v redis-check-rdb)" \
        --port 0 --unixsocket "$work/redis" --save '' --dir "$work" >"$work/redis.log" 2>&1) &
    pids+=($!)
}

# Orders a second of the bare transaction over $1 connections.
bare() {
    local bare=(sysbench "$here/bare_order.lua" --mysql-socket="$work/sock" --mysql-user=bench
        --mysql-password=bench --mysql-db=shop --threads="$1" --time="$seconds")
    "${bare[@]}" run | sed -nE 's/.*transactions:.*\(([0-9.]+) per sec.*/\1/p'
}

# Orders a second of a replica with those flags, over so many connections, each from a new user.
service() {
    local connections=$1 voucher replica address
    shift
    voucher=$(sql shop -e "INSERT INTO vouchers (title, description, price_cents,
        face_value_cents, starts_at, ends_at, status) VALUES ('b', 'b', 1, 1, '2020-01-01',
        '2120-01-01', 'on_sale'); SELECT LAST_INSERT_ID()")
    sql shop -e "INSERT INTO voucher_stock VALUES ($voucher, 2000000);
        INSERT INTO stock_grants (voucher_id, units) VALUES ($voucher, 2000000)"
    "$bin/seckill" serve --bind 127.0.0.1:0 --no-migrate --drain-delay-ms 0 "$@" \
        >"$work/replica" 2>"$work/replica.log" &
    replica=$!
    pids+=("$replica")
    for _ in $(seq 100); do
        grep -q listening "$work/replica" && break
        sleep 0.05
    done
    address=$(sed -n 's/^listening on //p' "$work/replica")
    "$bin/loadtest" run --target "$address" --tokens "$work/tokens" --voucher "$voucher" \
        --mix once --connections "$connections" --duration "$seconds" --json "$work/run.json" \
        >"$work/run.txt" 2>&1 || { cat "$work/run.txt" >&2; die "a load failed"; }
    kill "$replica"
    wait "$replica" || true
    sed -nE 's/.*"orders_per_s": *([0-9.]+).*/\1/p' "$work/run.json" | head -1
}

median() {
    sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

start_database
start_redis
export DATABASE_URL="mysql://bench:bench@127.0.0.1:$port/shop"
export REDIS_URL="redis+unix://$work/redis" JWT_SECRET=bench-only-0123456789-abcdefghijk
"$bin/seckill" migrate >/dev/null
"$bin/seckill" token --users "$users" --out "$work/tokens" >/dev/null
sysbench "$here/bare_order.lua" --mysql-socket="$work/sock" --mysql-user=bench \
    --mysql-password=bench --mysql-db=shop prepare >/dev/null

for round in $(seq "$rounds"); do
    for connections in 1 8 32; do
        rate=$(bare "$connections")
        echo "round $round  bare:$connections  $rate"
        echo "$rate" >>"$work/bare:$connections.rates"
    done
    for row in $rows; do
        IFS=: read -r name connections flags <<<"$row"
        rate=$(service "$connections" ${flags//,/ })
        echo "round $round  $name:$connections  $rate"
        echo "$rate" >>"$work/$name:$connections.rates"
    done
done

best=$(for file in "$work"/bare:*.rates; do median <"$file"; done | sort -n | tail -1)
echo
echo "$(sql -e "SELECT VERSION()"), medians of $rounds rounds of $seconds s; bare at best $best/s"
for file in "$work"/*.rates; do
    middle=$(median <"$file")
    awk -v name="$(basename "$file" .rates)" -v middle="$middle" -v best="$best" \
        'BEGIN { printf "%-16s %10.0f orders/s %8.2f of the best bare rate\n", name, middle,
                 middle / best }'
done
