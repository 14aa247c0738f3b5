#!/bin/sh
# Fetches Valkey from an archive of Debian into a folder. Prints the path of a valkey-server that
# runs from there, with the libraries it was built for. It changes nothing in the system.
# Usage: deploy/fetch-valkey.sh [FOLDER]; default: target/valkey. Silent if Valkey is there already.
# VALKEY_SUITE=trixie fetches Valkey 8 instead of that of unstable; name another FOLDER then.
# Exit codes: 0 the path was printed, 2 it could not be fetched.
set -eu
name=fetch-valkey title=Valkey
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian} suite=${VALKEY_SUITE:-unstable}
folder=${1:-target/valkey}
package=valkey-server program=usr/bin/valkey-server arguments=

works() {
    "$wrapper" --version >/dev/null 2>&1
}

. "$(dirname "$0")/fetch_program.sh"
fetch_program
