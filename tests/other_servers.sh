#!/usr/bin/env bash
# A sale on Valkey and one on MySQL, whatever servers are installed. Both are fetched into target/,
# once. For `make test`; `make test-valkey` and `make test-mysql` run all that is about them.
#
#   --fetch    only fetches them
#
# Exit codes: 0 both sold as predicted, 1 one did not, 2 one could not be fetched.
set -eu -o pipefail
cd "$(dirname "$0")/.."

valkey=$(deploy/fetch-valkey.sh)
mysql=$(deploy/fetch-mysql.sh)
[ "${1-}" != --fetch ] || exit 0

# `lua-release` frees its lock by a command that Valkey alone has.
sell() {
    target/debug/loadtest matrix --locks lua-release,mysql-row --scopes user --guards on \
        --scenarios short-work --replicas 2 "$@"
}
REDIS_SERVER=$valkey sell --redis valkey
MYSQLD=$mysql sell --db mysql
