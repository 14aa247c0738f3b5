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
# A promotion that was interrupted may have left it a source: it follows none.
[ "$name" != "$primary" ] || exec docker-entrypoint.sh mysqld "$@" --skip-replica-start

fail() {
  echo "mysql-server.sh: $*" >&2
  exit 1
}

# SQL goes in by stdin: every user of the machine sees arguments.
on_primary() { printf '%s\n' "$1" | MYSQL_PWD=$MYSQL_ROOT_PASSWORD mysql -h "$primary" -u root; }
here() { printf '%s\n' "$1" | MYSQL_PWD=$root mysql -u root; }

# Starts a server that only this script reaches, as the root of that password.
start() { # PASSWORD ARGUMENTS...
  root=$1
  shift
  mysqld "$@" --skip-networking --mysqlx=OFF --skip-replica-start &
  server=$!
  until here "SELECT 1" >/dev/null 2>&1; do
    kill -0 "$server" 2>/dev/null || fail "mysqld ended before it answered"
    sleep 0.5
  done
}

# Replaces the data by a clone that follows the primary from its next start on. The flag stays until
# all of it is done: a start after an interruption begins again.
copy() {
  local said
  touch "$pair/clone-$name"
  until on_primary "SELECT 1" >/dev/null 2>&1; do sleep 0.5; done
  # Not in the binary log: a primary that waits for this replica would wait here too. The clone has
  # the account.
  on_primary "SET sql_log_bin = 0;
    CREATE USER IF NOT EXISTS replication@'%'
      IDENTIFIED BY '$password' REQUIRE SSL;
    GRANT REPLICATION SLAVE, BACKUP_ADMIN ON *.* TO replication@'%'"
  # Nor does it wait until it has a replica again: a clone waits for each COMMIT that waits.
  on_primary "SET GLOBAL rpl_semi_sync_source_enabled = OFF"
  rm -rf "${data:?}"/* "$data"/.[!.]*
  mysqld --initialize-insecure
  start "" "$@"
  # A server without a supervisor ends after it, with error 3707.
  said=$(here "SET GLOBAL clone_valid_donor_list = '$primary:3306';
    CLONE INSTANCE FROM replication@'$primary':3306
      IDENTIFIED BY '$password' REQUIRE SSL" 2>&1) || true
  case $said in
    *3707*) wait "$server" || true ;;
    *) fail "no clone: $said" ;;
  esac
  # Not at later starts: that would throw away what was received and not yet applied.
  start "$MYSQL_ROOT_PASSWORD" "$@"
  here "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '$primary', SOURCE_USER = 'replication',
      SOURCE_PASSWORD = '$password', SOURCE_SSL = 1, SOURCE_AUTO_POSITION = 1,
      SOURCE_CONNECT_RETRY = 1, SOURCE_RETRY_COUNT = 0;
    SHUTDOWN"
  wait "$server"
  on_primary "SET PERSIST rpl_semi_sync_source_enabled = ON"
  rm "$pair/clone-$name"
}

[ -d "$data/mysql" ] && [ ! -e "$pair/clone-$name" ] || copy "$@"
exec mysqld "$@" --super-read-only=ON
