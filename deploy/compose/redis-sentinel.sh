#!/bin/sh
# Starts a sentinel of sentinel.yml. It keeps what it learns in its volume, in the file that is
# written at the first start.
#
#   redis-sentinel.sh ADDRESS MASTER    its own address, and that of the first master
set -eu
address=$1 master=$2 file=/data/sentinel.conf
: "${REDIS_SENTINEL_PASSWORD:?in .env is missing or empty}"
umask 077
# The service's user may ask for the master, and nothing else. The default user has no rights.
[ -f "$file" ] || cat >"$file" <<LINES
port 26379
dir /data
user default off
user seckill on >$REDIS_PASSWORD -@all +ping +sentinel|master +sentinel|get-master-addr-by-name
user sentinel on >$REDIS_SENTINEL_PASSWORD allchannels +@all
sentinel sentinel-user sentinel
sentinel sentinel-pass $REDIS_SENTINEL_PASSWORD
sentinel announce-ip $address
sentinel monitor seckill $master 6379 2
sentinel auth-user seckill sentinel
sentinel auth-pass seckill $REDIS_SENTINEL_PASSWORD
sentinel down-after-milliseconds seckill 3000
sentinel failover-timeout seckill 10000
sentinel parallel-syncs seckill 2
LINES
exec redis-server "$file" --sentinel
