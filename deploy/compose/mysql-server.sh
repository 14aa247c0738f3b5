#!/bin/sh
# Starts one of the two MySQL of semi-sync.yml. A volume that both have says which is the primary.
# The other one takes no writes. It replaces its data by a clone if it has none, or if it was the
# primary before: what it has alone was never acknowledged.
#
#   mysql-server.sh NAME ARGUMENTS...    its own name, and arguments of mysqld
set -eu
name=$1 data=/var/lib/mysql pair=/var/lib/mysql-files
shift
: "${MYSQL_REPLICATION_PASSWORD:?in .env is missing or empty}"
# MySQL takes no longer one for replication.
password=$(printf %.32s "$MYSQL_REPLICATION_PASSWORD")
primary=mysql number=1
[ ! -f $pair/primary ] || read -r primary <$pair/primary
[ "$name" = mysql ] || number=2

# A COMMIT is answered when the replica has it in its relay log, on its disk. Without one it waits,
# for a day.
set -- "$@" --server-id=$number --gtid-mode=ON --enforce-gtid-consistency=ON \
  --plugin-load-add=semisync_source.so --plugin-load-add=semisync_replica.so \
  --plugin-load-add=mysql_clone.so --loose-rpl-semi-sync-source-timeout=86400000 \
  --loose-rpl-semi-sync-replica-enabled=ON --sync-relay-log=1 --relay-log=relay
[ "$name" != "$primary" ] || exec docker-entrypoint.sh mysqld "$@"

on_primary() { MYSQL_PWD=$MYSQL_ROOT_PASSWORD mysql -h "$primary" -u root -e "$1"; }
here() { mysql -u root -e "$1"; }
until_true() { until "$@" >/dev/null 2>&1; do sleep 0.5; done; }

copy() {
  local server said
  until_true on_primary "SELECT 1"
  on_primary "CREATE USER IF NOT EXISTS replication@'%'
      IDENTIFIED BY '$password' REQUIRE SSL;
    GRANT REPLICATION SLAVE, BACKUP_ADMIN ON *.* TO replication@'%'"
  touch "$pair/clone-$name"
  rm -rf "${data:?}"/* "$data"/.[!.]*
  mysqld --initialize-insecure
  mysqld "$@" --skip-networking --mysqlx=OFF &
  server=$!
  until_true here "SELECT 1"
  # A server without a supervisor ends after it, with error 3707.
  said=$(here "SET GLOBAL clone_valid_donor_list = '$primary:3306';
    CLONE INSTANCE FROM replication@'$primary':3306
      IDENTIFIED BY '$password' REQUIRE SSL" 2>&1) || true
  case $said in
    *3707*) wait "$server" || true ;;
    *) echo "mysql-server.sh: no clone: $said" >&2; exit 1 ;;
  esac
  rm "$pair/clone-$name"
}

if [ ! -d "$data/mysql" ] || [ -e "$pair/clone-$name" ]; then
  copy "$@"
  # Not at later starts: that would throw away what was received and not yet applied.
  echo "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '$primary', SOURCE_USER = 'replication'," \
    "SOURCE_PASSWORD = '$password', SOURCE_SSL = 1, SOURCE_AUTO_POSITION = 1," \
    "SOURCE_CONNECT_RETRY = 1, SOURCE_RETRY_COUNT = 0;" >/tmp/follow.sql
  echo "START REPLICA;" >>/tmp/follow.sql
  set -- "$@" --init-file=/tmp/follow.sql
  on_primary "SET PERSIST rpl_semi_sync_source_enabled = ON"
fi
exec mysqld "$@" --super-read-only=ON
