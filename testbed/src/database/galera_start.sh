#!/bin/sh
# Purpose: starts a node of Galera where its data end, as the service of a distribution does. A node
# that was killed has not written down where that is, so it is asked for it before it starts. Within
# a schema change or a transfer a node writes down that its files are of no history: no recovery
# helps then.
# Usage: galera_start.sh GRASTATE SERVER OPTION...
set -eu
state=$1
shift
if grep -q '^uuid: *0*-0*-0*-0*-0*$' "$state"; then
    echo "killed within a schema change or a transfer: this node needs a copy of all files" >&2
    exit 1
fi
if grep -q '^seqno: *-1$' "$state"; then
    recovered=$("$@" --wsrep-recover 2>&1 | sed -n 's/.*WSREP: Recovered position: *//p')
    [ -n "$recovered" ] || { echo "no position was recovered" >&2; exit 1; }
    set -- "$@" --wsrep-start-position="$recovered"
fi
exec "$@"
