#!/usr/bin/env bash
# A sale on Valkey and one on MySQL, whatever servers are installed. Both are fetched into target/,
# once. For `make test`; `make test-valkey` and `make test-mysql` run all tests. Where they may not
# be fetched (NO_INSTALL=1), or no key of Debian's archive is there, a line says that nothing was
# sold on them.
#
#   --fetch    only fetches them
#
# Exit codes: 0 both sold as predicted, 1 one did not, 2 one could not be fetched.
set -eu -o pipefail
cd "$(dirname "$0")/.."

lacks() {
    echo "other-servers: nothing was sold on Valkey and MySQL: $1" >&2
    exit 0
}

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [ ! -e target/mysql/root ] || [ ! -e target/valkey/root ]; then
    [ -z "${NO_INSTALL-}" ] || lacks "NO_INSTALL forbids to fetch them"
    [ -e "$keyring" ] || lacks "debian-archive-keyring is missing"
fi
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
