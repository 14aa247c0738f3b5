# Steps of try.sh, which reads this file: those with several servers.

# Whether a purchase succeeds, or has before: then its answer was lost.
bought() { # TOKEN VOUCHER
  local answer
  answer=$(call "$1" -m 10 -X POST "$page/api/vouchers/$2/orders")
  case $answer in
    *201 | *'"code":"already_ordered"'*409) ;;
    *) return 1 ;;
  esac
}

# Runs commands in the middle of a load. The load's judge and its audit have to find nothing, and a
# purchase has to succeed again.
fail_over() { # NAME COMMAND...
  local name=$1 id token from
  shift
  tokens "$name-probe.jsonl" 1
  token=$(field token <"$work/$name-probe.jsonl")
  id=$(voucher "$name-probe" 1)
  start_load "$name" 40 60
  from=$SECONDS
  "$@"
  until_true 30 bought "$token" "$id"
  echo "a purchase succeeded after $((SECONDS - from)) s"
  end_load "$name"
  grep 'every acknowledged order exists' "$work/$name.txt"
}

# Sets COMPOSE_FILE, as docs/compose.md says.
use_files() { # NAME...
  local files
  files=docker-compose.yml$(printf ':deploy/compose/%s.yml' "$@")
  sed -i "s|^#*COMPOSE_FILE=.*|COMPOSE_FILE=$files|" "$work/env"
}

# Whether that Redis has this line in its replication status.
replication() { # SERVICE LINE
  # shellcheck disable=SC2016  # the container's variables
  dc exec -T "$1" sh -c 'REDISCLI_AUTH=$REDIS_PASSWORD redis-cli --user seckill info replication' |
    tr -d '\r' | grep -x "$2" >/dev/null
}

# Prints a field of what the first sentinel says of the master.
sentinel() { # FIELD
  # shellcheck disable=SC2016  # the container's variables
  dc exec -T sentinel-1 sh -c \
    'REDISCLI_AUTH=$REDIS_PASSWORD redis-cli -p 26379 --user seckill sentinel master seckill' |
    tr -d '\r' | sed -n "/^$1\$/{n;p;q}"
}

sentinels_agree() {
  [ "$(sentinel num-slaves) $(sentinel num-other-sentinels)" = "2 2" ]
}

redis_sentinel() {
  local net=172.31.29 master

  step "Redis with replicas and sentinels, by a line in .env"
  dc down
  use_files sentinel
  sed -i "s/^#BACK_NET=.*/BACK_NET=$net/" "$work/env"
  dc up --detach
  until_true 60 sentinels_agree
  until_true 60 healthy 3
  find_addresses
  until_true 30 answer 3

  step "kill -9 of the Redis master under load: a replica is promoted"
  # The engine does not start it again after that, as after a lost machine.
  fail_over redis-master dc kill --signal KILL redis
  master=$(sentinel ip)
  case $master in
    "$net.12") master=redis-2 ;;
    "$net.13") master=redis-3 ;;
    *) fail "the sentinels name $master" ;;
  esac
  replication "$master" role:master || fail "$master is no master"

  step "the old master is back as a replica, and so are all after down and up"
  dc up --detach
  until_true 60 replication redis master_link_status:up
  dc down
  dc up --detach
  until_true 60 healthy 3
  find_addresses
  until_true 30 answer 3
  replication "$master" role:master || fail "$master forgot that it is the master"
  until_true 60 replication redis master_link_status:up
  expect 409 "$(call "$buyer" -X POST "$page/api/vouchers/1/orders")"
}

# Prints a variable or a status of that MySQL.
mysql_says() { # SERVICE NAME
  # shellcheck disable=SC2016  # the container's variables
  dc exec -T "$1" sh -c 'MYSQL_PWD=$MYSQL_ROOT_PASSWORD exec mysql -u root -NBe "$1"' sql \
    "SHOW GLOBAL VARIABLES LIKE '$2'; SHOW GLOBAL STATUS LIKE '$2'" 2>/dev/null | cut -f 2
}

# Whether that primary answers a COMMIT when a replica has it.
semi_synchronous() { # SERVICE
  [ "$(mysql_says "$1" rpl_semi_sync_source_enabled)" = ON ] &&
    [ "$(mysql_says "$1" Rpl_semi_sync_source_clients)" = 1 ]
}

lose_primary_and_promote() {
  dc kill --signal KILL mysql
  COMPOSE_PROJECT_NAME=seckill-try COMPOSE_ENV_FILES=$work/env deploy/promote-mysql.sh mysql-2
}

mysql_pair() {
  step "MySQL with a semi-synchronous replica, by a line in .env"
  dc down
  use_files sentinel semi-sync
  dc up --detach
  until_true 60 semi_synchronous mysql
  until_true 60 healthy 3
  find_addresses
  until_true 30 answer 3

  step "kill -9 of the MySQL primary under load: its replica is promoted, and no order is lost"
  fail_over mysql-primary lose_primary_and_promote

  step "the old primary is back as a replica, and so are both after down and up"
  dc up --detach
  until_true 120 semi_synchronous mysql-2
  dc down
  dc up --detach
  until_true 60 healthy 3
  find_addresses
  until_true 30 answer 3
  until_true 60 semi_synchronous mysql-2
  [ "$(mysql_says mysql super_read_only)" = ON ] || fail "the old primary takes writes"
  expect 409 "$(call "$buyer" -X POST "$page/api/vouchers/1/orders")"
}

# Prints how many orders lie on that shard.
orders_of() { # SHARD
  # shellcheck disable=SC2016  # the container's variables
  dc exec -T "$1" sh -c 'MYSQL_PWD=$MYSQL_PASSWORD exec mysql -h 127.0.0.1 -u seckill seckill \
    -NBe "SELECT COUNT(*) FROM orders"'
}

lose_both_shards() {
  dc kill --signal KILL shard0 shard1
  dc up --detach
}

# Begins anew: the data of one MySQL cannot become that of shards.
two_shards() {
  local id

  step "vouchers on two shards, by a line in .env"
  dc --profile demo down --volumes
  use_files shards
  dc --progress plain --profile demo up --detach --build >"$work/build.txt" 2>&1 ||
    { tail -n 30 "$work/build.txt"; fail "it did not come up"; }
  until_true 60 healthy 3
  find_addresses
  until_true 30 answer 3
  tokens admin.jsonl 1 --admin
  admin=$(field token <"$work/admin.jsonl")
  tokens shopper.jsonl 1
  buyer=$(field token <"$work/shopper.jsonl")
  # Of the two ids one is even: a shard each.
  for id in "$(voucher Even 1)" "$(voucher Odd 1)"; do
    expect 201 "$(call "$buyer" -X POST "$page/api/vouchers/$id/orders")"
    expect 409 "$(call "$buyer" -X POST "$page/api/vouchers/$id/orders")"
    expect 200 "$(call "$admin" "$operators/api/admin/vouchers/$id/audit")"
  done
  [ "$(orders_of shard0) $(orders_of shard1)" = "1 1" ] || fail "the orders lie on one shard"

  step "kill -9 of both shards under load: no order is lost"
  fail_over shards lose_both_shards
}
