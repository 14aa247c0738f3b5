#!/usr/bin/env bash
# A sale on Valkey and one on MySQL, whatever servers are installed, and the tests of what only
# these do. Both are fetched into target/, once. For `make test`; `make test-valkey` and
# `make test-mysql` run all tests. Where they may not be fetched (NO_INSTALL=1), or no key of
# Debian's archive is there, a line says that nothing was sold on them.
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

# As `make test` has built it.
run_test() { # PROGRAM TEST
    cargo test --workspace --locked --test "$1" -- --exact "$2" | grep -x "test $2 ... ok"
}
sell() {
    target/debug/loadtest matrix --locks lua-release,mysql-row --scopes user --guards on \
        --scenarios short-work --replicas 2 "$@"
}
REDIS_SERVER=$valkey sell --redis valkey
MYSQLD=$mysql sell --db mysql
# Valkey alone has DELIFEQ, and only MySQL keeps what no replica has confirmed.
by_delifeq=lua_release_faults::
by_delifeq+=a_server_that_compares_and_deletes_by_itself_runs_no_script_and_others_are_asked_once
unconfirmed=unconfirmed_commits::
unconfirmed+=a_semi_synchronous_primary_that_is_restarted_shows_no_buyer_what_no_replica_has
REDIS_SERVER=$valkey run_test redis "$by_delifeq"
TESTBED_DATABASE=mysql MYSQLD=$mysql run_test service "$unconfirmed"
