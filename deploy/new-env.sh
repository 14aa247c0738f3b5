#!/bin/sh
# Writes .env from .env.example, each secret in it a random one. An .env that is there is left alone.
# Exit codes: 0 it was written, 2 it was not.
set -eu
cd "$(dirname "$0")/.."

die() {
    echo "new-env: $*" >&2
    exit 2
}

[ ! -e .env ] || die ".env exists already; remove it to get new secrets (of empty volumes only)"
umask 077
while IFS= read -r line; do
    case $line in
        [A-Z]*_PASSWORD= | [A-Z]*_SECRET=) line=$line$(openssl rand -hex 32) || die "openssl gave no secret" ;;
    esac
    printf '%s\n' "$line"
done <.env.example >.env.new
mv .env.new .env
echo "new-env: .env was written"
