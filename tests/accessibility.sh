#!/bin/bash
#
# Has axe look for barriers on all pages: that of the shop, the race board, a report and one of the
# ladder. Each is looked at in English and Chinese, light and dark, on a desktop and a phone, with
# its dialogs and panels open. axe-core (MPL-2.0) comes by npm into target/axe/, at the version and
# with the hash of tests/accessibility/package-lock.json. `loadtest up` starts all servers.
#
#   PROGRAMS  the folder of seckill and loadtest: target/debug if it is not set.
#
# Exit codes: 0 no barrier, 1 there is one, 2 something needed is missing.
set -eu -o pipefail

programs=${PROGRAMS:-target/debug}
settings=$PWD/tests/accessibility
axe=$PWD/target/axe
out=$PWD/target/accessibility
start_limit_s=120

die() {
    echo "accessibility: $*" >&2
    exit 2
}

install_axe() {
    ! cmp -s "$settings/package-lock.json" "$axe/installed.json" || return 0
    mkdir -p "$axe"
    cp "$settings/package.json" "$settings/package-lock.json" "$axe/"
    (cd "$axe" && npm ci --silent --no-audit --no-fund) || die "npm could not install axe-core"
    cp "$settings/package-lock.json" "$axe/installed.json"
}

free_port() {
    python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])'
}

# The cluster prints the addresses of the page and of the race board.
start_cluster() {
    "$programs/loadtest" up --board --replicas 1 --port "$(free_port)" >"$out/cluster.txt" 2>&1 &
    cluster=$!
    trap 'kill -INT "$cluster" 2>/dev/null; wait "$cluster" || true' EXIT
    for _ in $(seq "$((start_limit_s * 10))"); do
        ! grep -qs 'race board' "$out/cluster.txt" || break
        kill -0 "$cluster" 2>/dev/null || { cat "$out/cluster.txt" >&2 && die "no cluster"; }
        sleep 0.1
    done
    page=$(sed -nE 's/^ +page +(http.*)/\1/p' "$out/cluster.txt")
    board=$(sed -nE 's/^ *race board +(http.*)/\1/p' "$out/cluster.txt")
    [ -n "$page" ] && [ -n "$board" ] || die "no cluster within $start_limit_s s"
}

# The verdicts do not matter here, only that there is a page with them.
write_reports() {
    "$programs/loadtest" compare --locks local,redisson --guards off --replicas 2 --scopes user \
        --report-dir "$out/report" >"$out/report.txt" 2>&1 || true
    "$programs/loadtest" learn lua-release --report-dir "$out/learn" >"$out/learn.txt" 2>&1 || true
    for report in report learn; do
        [ -s "$out/$report/index.html" ] || { cat "$out/$report.txt" >&2 && die "no $report"; }
    done
}

for needed in node npm python3 chromedriver; do
    command -v "$needed" >/dev/null || die "$needed is missing"
done
install_axe
rm -rf "$out"
mkdir -p "$out/report" "$out/learn"
write_reports
start_cluster
AXE="$axe/node_modules/axe-core/axe.min.js" node "$settings/check.mjs" "page=$page" \
    "board=$board" "report=file://$out/report/index.html" "learn=file://$out/learn/index.html"
