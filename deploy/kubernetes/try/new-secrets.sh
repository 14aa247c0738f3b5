#!/bin/sh
# Writes secrets.env, which git ignores, with random secrets. An existing file is left as it is.
# Usage: deploy/kubernetes/try/new-secrets.sh [FILE], instead of secrets.env beside this script
# Exit codes: 0 it was written, 2 it was not.
set -eu
file=${1:-$(dirname "$0")/secrets.env}

die() {
    echo "new-secrets: $*" >&2
    exit 2
}

random() {
    openssl rand -hex 32 || die "openssl gave no secret"
}

[ ! -e "$file" ] || die "$file exists already; its passwords are those of the volumes"
umask 077
mysql=$(random) redis=$(random) root=$(random) jwt=$(random) payment=$(random)
cat >"$file.new" <<END
MYSQL_ROOT_PASSWORD=$root
MYSQL_PASSWORD=$mysql
REDIS_PASSWORD=$redis
DATABASE_URL=mysql://seckill:$mysql@mysql:3306/seckill
REDIS_URL=redis://seckill:$redis@redis:6379/0
JWT_SECRET=$jwt
PAYMENT_SECRET=$payment
END
mv "$file.new" "$file"
echo "new-secrets: $file was written"
