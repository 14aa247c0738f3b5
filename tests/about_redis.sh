#!/usr/bin/env bash
# Runs those of the tests whose subject is in Redis, on the server of that protocol that
# REDIS_SERVER names. docs/redis.md lists what they are about. For `make test-valkey`.
set -eu -o pipefail
: "${REDIS_SERVER:?names no server}"

# Flaws of locks in Redis.
flaws=(
  failover:: five:: late_release:: long_work:: reentry:: stays_for_ever:: wake_up:: clocks::
  server_clock::a_redis redlock:: multi:: fence::
)
service=(
  sentinel:: faults:: rights:: stuck:: redis_urls:: limits:: every_kind:: released:: queued::
  login:: lock_servers:: redis_cluster:: pressure:: fence:: late:: kill:: cli::lock_ dianping::
)
# What these words mean besides: pages in a browser, and databases.
not_service=(--skip page:: --skip database_failover::)
not_conformance=(
  --skip mysql- --skip zookeeper:: --skip etcd:: --skip nats:: --skip local:: --skip none::
  --skip client-
)
# Tests of all kinds that last, one after the other.
all_kinds=(validity takeover order fairness tokens clock_jumps composites)

cargo test --locked -p distlock --features injected-bugs \
  --test redis --test cluster --test sentinel
cargo test --locked -p conformance --test conformance -- "${not_conformance[@]}"
cargo test --locked -p conformance --test flaws -- "${flaws[@]}"
cargo test --locked -p conformance "${all_kinds[@]/#/--test=}"
cargo test --locked -p seckill --test service -- "${service[@]}" "${not_service[@]}"
