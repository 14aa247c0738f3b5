#!/bin/sh
# Writes .env from .env.example, with random secrets. An existing file is left as it is.
# Usage: deploy/new-env.sh [FILE], instead of .env
# Exit codes: 0 it was written, 2 it was not.
set -eu
example=$(dirname "$0")/../.env.example
file=${1:-$(dirname "$0")/../.env}

die() {
    echo "new-env: $*" >&2
    exit 2
}

[ ! -e "$file" ] || die "$file exists already; its passwords are those of the volumes"
umask 077
while IFS= read -r line; do
    case $line in
        [A-Z]*_PASSWORD= | [A-Z]*_SECRET=)
            line=$line$(openssl rand -hex 32) || die "openssl gave no secret"
            ;;
    esac
    printf '%s\n' "$line"
done <"$example" >"$file.new"
mv "$file.new" "$file"
echo "new-env: $file was written"
