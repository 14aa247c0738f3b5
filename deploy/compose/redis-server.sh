#!/bin/sh
# Starts one of the three Redis of sentinel.yml. Its settings are a file in its volume: sentinels
# note there whose replica it is. All other lines are written anew at each start.
#
#   redis-server.sh ADDRESS [MASTER]    its own address, and that of its master at the first start
#
# Passwords go in by a file: every user of the machine sees arguments.
set -eu
address=$1 master=${2:-} file=/data/redis.conf
: "${REDIS_REPLICATION_PASSWORD:?in .env is missing or empty}"
: "${REDIS_SENTINEL_PASSWORD:?in .env is missing or empty}"

role=${master:+replicaof $master 6379}
[ ! -f "$file" ] || role=$(grep '^replicaof ' "$file" || true)
umask 077
# The first lines are those of docker-compose.yml; +role is for clients that ask sentinels.
cat >"$file.new" <<LINES
user default off
user seckill on >$REDIS_PASSWORD $(grep -v '^#' /redis.acl | tr '\n' ' ') +role
maxmemory 256mb
maxmemory-policy noeviction
appendonly yes
appendfsync everysec
user replication on >$REDIS_REPLICATION_PASSWORD -@all +psync +replconf +ping
user sentinel on >$REDIS_SENTINEL_PASSWORD -@all &__sentinel__:hello +multi +exec +slaveof +ping \
+info +role +publish +subscribe +config|rewrite +client|setname +client|kill +script|kill
masteruser replication
masterauth $REDIS_REPLICATION_PASSWORD
replica-announce-ip $address
dir /data
$role
LINES
mv "$file.new" "$file"
exec redis-server "$file"
