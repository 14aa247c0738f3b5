#!/bin/sh
# Starts the front or a shard of shards.yml, and makes the database, its user, and the names of the
# shards. All are made anew at each start.
#
#   spider-server.sh ARGUMENTS...    arguments of mariadbd
#
# The password goes in by a file: every user of the machine sees arguments.
set -eu
umask 077
[ -d /var/lib/mysql/mysql ] ||
  mariadb-install-db --no-defaults --datadir=/var/lib/mysql --skip-test-db >/dev/null

# One statement a line.
{
  echo "CREATE DATABASE IF NOT EXISTS seckill;"
  echo "CREATE OR REPLACE USER seckill@'%' IDENTIFIED BY '$MYSQL_PASSWORD';"
  echo "GRANT ALL ON seckill.* TO seckill@'%';"
  for shard in shard0 shard1; do
    echo "CREATE OR REPLACE SERVER $shard FOREIGN DATA WRAPPER mysql OPTIONS" \
      "(HOST '$shard', PORT 3306, DATABASE 'seckill', USER 'seckill', PASSWORD '$MYSQL_PASSWORD');"
  done
} >/tmp/init.sql
exec mariadbd --no-defaults --datadir=/var/lib/mysql --socket=/tmp/mysqld.sock \
  --init-file=/tmp/init.sql --skip-name-resolve --default-time-zone=+00:00 --local-infile=OFF \
  --innodb-flush-log-at-trx-commit=1 --max-connections=600 "$@"
