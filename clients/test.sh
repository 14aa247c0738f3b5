#!/usr/bin/env bash
#
# Runs the clients' own tests on private Redis servers, all at the same time. What a language prints
# comes when its tests have ended, whole. `clients/prepare.sh` has installed what they need.
#
#   test.sh [LANGUAGE...]    python, go, node: all three if none is named
#
# Exit codes: 0 all tests passed, 1 one failed, 2 a client is not prepared.
set -eu -o pipefail

clients=$(cd "$(dirname "$0")" && pwd)
# Far more than any of them takes.
limit_s=300
built=$(dirname "$clients")/target/clients
venv=$built/python/bin
export PATH=$built/bin:$PATH

die() {
    echo "clients: $*" >&2
    exit 2
}

# Whether `prepare.sh` has been there; what it leaves behind last.
is_prepared() {
    case $1 in
        python) [ -e "$built/python/installed.txt" ] ;;
        go) [ -e "$built/go/contender" ] ;;
        node) [ -e "$clients/node/dist" ] ;;
        *) die "there is no client for $1; there are python, go and node" ;;
    esac
}

test_python() {
    cd "$clients/python"
    export PYTHONDONTWRITEBYTECODE=1
    timeout "$limit_s" "$venv/python" -m pytest -q -p no:cacheprovider && "$venv/mypy" src
}

test_go() {
    cd "$clients/go"
    go vet ./... && go test -timeout "${limit_s}s" ./... && cd contender && go vet ./...
}

test_node() {
    cd "$clients/node"
    timeout "$limit_s" node --test dist/test/*.test.js
}

languages=${*:-python go node}
for language in $languages; do
    is_prepared "$language" || die "not prepared: $language; run clients/prepare.sh first"
done
said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT
code=0
for language in $languages; do
    ("test_$language") >"$said/$language" 2>&1 &
    echo $! >"$said/$language.pid"
done
for language in $languages; do
    wait "$(cat "$said/$language.pid")" || code=1
    echo "== $language"
    cat "$said/$language"
done
exit "$code"
