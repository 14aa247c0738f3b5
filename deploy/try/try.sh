#!/usr/bin/env bash
# Builds the images, runs docker-compose.yml as a user would, and ends with a verdict. It uses a
# project of its own (seckill-try) on free ports, and leaves only the images.
#
#   deploy/try/try.sh    needs docker with compose, and curl; where no image can be pulled,
#                        deploy/try/stand-ins.sh first
#   BUILD_PROFILE=demo   builds the service's program as quickly as the laboratory's
#
# Exit codes: 0 every step succeeded, 1 one did not, 2 something is missing.
set -eu -o pipefail
cd "$(dirname "$0")/../.."

work=$PWD/target/try-compose
export SECKILL_TAG=try HTTP_PORT=127.0.0.1:0 OPERATOR_PORT=0
phone=13800000001
now= steps=0 begun=$SECONDS

dc() { docker compose --env-file "$work/env" -p seckill-try --progress quiet "$@"; }

step() {
  now=$1
  steps=$((steps + 1))
  printf 'try-compose %4d s: %s\n' $((SECONDS - begun)) "$now"
}

fail() {
  echo "try-compose: $*" >&2
  exit 1
}

finish() {
  local code=$?
  trap - EXIT
  [ "$code" = 0 ] || dc logs --tail 20 >"$work/logs.txt" 2>&1 || true
  dc --profile demo --profile lab down --volumes --remove-orphans >/dev/null 2>&1 || true
  if [ "$code" = 0 ]; then
    echo "Verdict: good. All $steps steps succeeded in $((SECONDS - begun)) s."
  else
    echo "Verdict: failed at step $steps, \"$now\"; logs: ${work#"$PWD"/}/logs.txt"
    exit 1
  fi
}

# Tries a command, twice a second, until it succeeds.
until_true() { # SECONDS COMMAND...
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || fail "this did not come true in time: $*"
    sleep 0.5
  done
}

healthy() { # NUMBER
  [ "$(dc ps --format '{{.Health}}' seckill | grep -c '^healthy$')" = "$1" ]
}

# Whether that many different replicas answer 40 requests.
answer() { # NUMBER
  local seen
  seen=$(for _ in {1..40}; do curl -sI "$page/api/vouchers"; done | tr -d '\r' |
    sed -nE 's/^x-replica: //Ip' | sort -u | wc -l)
  [ "$seen" = "$1" ]
}

find_addresses() {
  page=http://$(dc port haproxy 8080)
  operators=http://$(dc port haproxy 8081)
}

field() { sed -nE "s/.*\"$1\":\"?([^\",}]*).*/\1/p" | sed -n 1p; }

# Sends a request with that token; prints the body, then the status on a line of its own.
call() { # TOKEN ARGUMENTS-OF-CURL...
  local token=$1
  shift
  curl -s -w '\n%{http_code}\n' -H "Authorization: Bearer $token" "$@"
}

expect() { # STATUS ANSWER
  [ "$(tail -n 1 <<<"$2")" = "$1" ] || fail "expected $1, got: $2"
}

# Tokens, as docker-compose.yml tells to make them.
tokens() { # FILE USERS [--admin]
  dc run --rm --user "$(id -u)" --volume "$work:/out" seckill \
    token --users "$2" --out "/out/$1" ${3-} >/dev/null
}

# A new voucher on sale; prints its id.
voucher() { # TITLE UNITS
  local answer id
  answer=$(call "$admin" "$page/api/admin/vouchers" --json "{\"title\":\"$1\",\"description\":\"\",
    \"price_cents\":100,\"face_value_cents\":200,\"stock\":$2,
    \"starts_at\":\"2026-01-01T00:00:00Z\",\"ends_at\":\"2036-01-01T00:00:00Z\"}")
  expect 201 "$answer"
  id=$(field id <<<"$answer")
  answer=$(call "$admin" -X POST "$page/api/admin/vouchers/$id/on-sale")
  expect 200 "$answer"
  echo "$id"
}

# Starts a load in the background, judged at its end: each user buys one unit of one voucher.
start_load() { # NAME RATE SECONDS
  local users=$(($2 * $3)) id
  tokens "$1.jsonl" "$users"
  id=$(voucher "$1" "$users")
  dc run --rm -T --volume "$work:/load:ro" lab run --target http://haproxy:8080 \
    --audit-url http://haproxy:8081 --tokens "/load/$1.jsonl" \
    --admin-token-file /load/admin.jsonl --voucher "$id" --mix once --arrival constant \
    --rate "$2" --duration "$3" >"$work/$1.txt" 2>&1 </dev/null &
  load=$!
  until_true 30 sold "$id" $((users - $2))
}

# Whether at most that many units are left.
sold() { # VOUCHER UNITS
  local left
  left=$(curl -s "$page/api/vouchers/$1" | field stock)
  [ -n "$left" ] && [ "$left" -le "$2" ]
}

end_load() { # NAME
  kill -0 "$load" 2>/dev/null || fail "the load was over before the deployment was whole again"
  wait "$load" || { tail -n 30 "$work/$1.txt"; fail "the load was judged to be wrong"; }
  grep '^answers by code' "$work/$1.txt"
}

code_in_log() { dc logs --no-log-prefix seckill | grep "$phone" >/dev/null; }
has_restarted() { # CONTAINER
  [ "$(docker inspect -f '{{.RestartCount}} {{.State.Health.Status}}' "$1")" = "1 healthy" ]
}

# shellcheck source-path=SCRIPTDIR
. deploy/try/servers.sh

for program in docker curl openssl; do
  command -v "$program" >/dev/null || { echo "try-compose: $program is missing" >&2; exit 2; }
done
docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1 ||
  { echo "try-compose: there is no docker engine, or no docker compose" >&2; exit 2; }
rm -rf "$work"
mkdir -p "$work/report"
trap finish EXIT
trap 'exit 130' INT TERM
printf '' >"$work/env"

step "without secrets nothing starts, and it is said why"
! dc up --detach mysql redis >/dev/null 2>&1 || fail "it started"
dc logs settings | grep "MYSQL_ROOT_PASSWORD in .env is missing" || fail "it is not said"

step "up --build: the image, migrate, three replicas, two vouchers"
rm "$work/env"
deploy/new-env.sh "$work/env"
# As on a machine that has never built it: `migrate` runs an image that another service builds.
docker image rm seckill:try seckill-lab:try >/dev/null 2>&1 || true
dc --progress plain --profile demo up --detach --build >"$work/build.txt" 2>&1 ||
  { tail -n 30 "$work/build.txt"; fail "it did not come up"; }
until_true 60 healthy 3
find_addresses
until_true 30 answer 3

step "the page"
curl -sf "$page/" | grep -i '<title>' || fail "no page at $page"
for file in app.js style.css; do curl -sf "$page/$file" >/dev/null || fail "no $file"; done
[ "$(curl -s "$page/api/vouchers" | grep -o '"on_sale"' | wc -l)" = 2 ] || fail "not two vouchers"

step "a login with the code from the log"
challenge=$(curl -sf "$page/api/login/codes" --json "{\"phone\":\"$phone\"}" | field challenge)
[ -n "$challenge" ] || fail "no challenge"
until_true 10 code_in_log
code=$(dc logs --no-log-prefix seckill | grep "$phone" | field login_code)
login="{\"phone\":\"$phone\",\"challenge\":\"$challenge\",\"code\":\"$code\"}"
buyer=$(curl -s "$page/api/login" --json "$login" | field token)
[ -n "$buyer" ] || fail "no login with the code $code"

step "a purchase, and no second one"
expect 201 "$(call "$buyer" -X POST "$page/api/vouchers/1/orders")"
expect 409 "$(call "$buyer" -X POST "$page/api/vouchers/1/orders")"

step "an admin's voucher, bought and audited"
tokens admin.jsonl 1 --admin
admin=$(field token <"$work/admin.jsonl")
dinner=$(voucher "Dinner for two" 1)
expect 201 "$(call "$buyer" -X POST "$page/api/vouchers/$dinner/orders")"
expect 404 "$(call "$admin" "$page/api/admin/vouchers/$dinner/audit")"
expect 200 "$(call "$admin" "$operators/api/admin/vouchers/$dinner/audit")"

step "--scale seckill=5"
dc up --detach --scale seckill=5
until_true 60 healthy 5
until_true 30 answer 5

step "the laboratory's image"
dc --progress plain --profile lab build lab >"$work/build.txt" 2>&1 ||
  { tail -n 30 "$work/build.txt"; fail "it did not build"; }

step "a rolling restart under load, without a lost request"
# On a busy machine the servers of a replica may not answer, which proves nothing: try again.
for try in 1 2 3; do
  since=$(date +%s)
  start_load "rolling-$try" 40 90
  for container in $(dc ps -q seckill); do
    docker restart --time 45 "$container" >/dev/null
    until_true 60 healthy 5
  done
  end_load "rolling-$try"
  ! grep -qE '^answers by code: 201: [0-9]+$' "$work/rolling-$try.txt" || break
  dc logs --since "$since" seckill | grep 'a server went away' ||
    fail "requests were refused or lost"
  [ "$try" != 3 ] || fail "three times the servers fell silent: this machine is too busy"
done

step "kill -9 of a replica under load; it comes back"
victim=$(dc ps -q seckill | sed -n 1p)
start_load killed 50 30
# By the engine's host, so that the engine sees a crash and not an order.
docker run --rm --pid host redis:7.4-bookworm \
  sh -c "kill -9 $(docker inspect -f '{{.State.Pid}}' "$victim")"
until_true 30 has_restarted "$victim"
until_true 30 answer 5
end_load killed

step "down and up again: the login and both orders are there"
dc down
dc up --detach
until_true 60 healthy 3
find_addresses
until_true 30 answer 3
orders=$(call "$buyer" "$page/api/orders")
expect 200 "$orders"
[ "$(grep -o '"voucher_id"' <<<"$orders" | wc -l)" = 2 ] || fail "not two orders: $orders"

redis_sentinel
mysql_pair
two_shards

step "the laboratory, which needs no .env"
docker compose --env-file /dev/null -p seckill-try --progress quiet run --rm -T \
  --volume "$work/report:/report" lab demo </dev/null >"$work/lab.txt" 2>&1 ||
  { tail -n 30 "$work/lab.txt"; fail "its story is not as predicted"; }
[ -s "$work/report/index.html" ] || fail "there is no report"
tail -n 3 "$work/lab.txt" | grep predicted
