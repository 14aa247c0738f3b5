#!/bin/sh
# Makes the replica of deploy/compose/semi-sync.yml the primary, after the old one was lost.
# After it `docker compose up --detach` brings that back as a replica, with a clone for its data.
# If it was interrupted, run it again: it goes on.
#
#   deploy/promote-mysql.sh NAME    mysql-2, or mysql if that is the replica
#
# Exit codes: 0 it takes writes, 2 it could not be promoted and takes none.
set -eu
new=${1:-}
cd "$(dirname "$0")/.."

die() {
  echo "promote-mysql: $*" >&2
  exit 2
}

case $new in
  mysql) old=mysql-2 ;;
  mysql-2) old=mysql ;;
  *) die "the name of the replica is missing: mysql or mysql-2" ;;
esac

# shellcheck disable=SC2016  # the container's variables
sql() {
  docker compose exec -T "$new" sh -c \
    'MYSQL_PWD=$MYSQL_ROOT_PASSWORD exec mysql -u root -NBe "$1"' sql "$1" </dev/null ||
    die "$new did not execute: $1"
}

files() { docker compose exec -T "$new" sh -c "cd /var/lib/mysql-files && $1" </dev/null; }

stop_old_and_apply() {
  local received
  [ -n "$(sql "SHOW REPLICA STATUS")" ] || die "$new is no replica"
  files "[ ! -e clone-$new ]" || die "$new has no whole clone of the primary"

  # 1. The old primary takes no writes: it does not run, and the engine does not start it again.
  docker compose kill "$old" >/dev/null 2>&1 || true
  [ -z "$(docker compose ps --quiet --status running "$old")" ] || die "$old still runs"

  # 2. What was received is applied. It may be more than was acknowledged.
  sql "STOP REPLICA IO_THREAD"
  received=$(sql "SELECT RECEIVED_TRANSACTION_SET
    FROM performance_schema.replication_connection_status WHERE CHANNEL_NAME = ''")
  [ "$(sql "SELECT WAIT_FOR_EXECUTED_GTID_SET('$received', 60)")" = 0 ] ||
    die "$new has not applied what it received within 60 s; run this again"

  # 3. It will wait for no replica until it has one. The old one starts as its replica from here on.
  sql "SET PERSIST rpl_semi_sync_source_enabled = OFF"
  files "touch clone-$old && echo $new >primary.new && mv primary.new primary" ||
    die "$new could not be named as the primary"
}

# The file names it if this ran before, up to here at least.
[ "$(files "cat primary" 2>/dev/null || true)" = "$new" ] || stop_old_and_apply

# 4. It follows none, and takes writes. This changes nothing at a primary.
sql "STOP REPLICA; RESET REPLICA ALL; SET GLOBAL super_read_only = OFF; SET GLOBAL read_only = OFF"
echo "promote-mysql: $new takes writes; docker compose up --detach brings $old back as its replica"
