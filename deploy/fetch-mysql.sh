#!/bin/sh
# Fetches MySQL from Debian's unstable archive into a folder. Prints the path of a mysqld that runs
# from there, with the libraries it was built for. It changes nothing in the system, so it needs no
# root and does not conflict with MariaDB.
# Usage: deploy/fetch-mysql.sh [FOLDER]; default: target/mysql. Silent if MySQL is there already.
# Exit codes: 0 the path was printed, 2 it could not be fetched.
set -eu
name=fetch-mysql title=MySQL
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian} suite=unstable
folder=${1:-target/mysql}
package=mysql-server-core program=usr/sbin/mysqld
# shellcheck disable=SC2016  # for the wrapper
arguments='--basedir="$root/usr" --lc-messages-dir="$root/usr/share/mysql" \
    --character-sets-dir="$root/usr/share/mysql/charsets" \
    --plugin-dir="$root/usr/lib/mysql/plugin"'

works() {
    "$wrapper" --no-defaults --version >/dev/null 2>&1
}

. "$(dirname "$0")/fetch_program.sh"
fetch_program
