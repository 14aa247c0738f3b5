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
script=accessibility
# shellcheck source=tests/own_cluster.sh
. tests/own_cluster.sh

# As clients/prepare.sh does, for Node knows its own list of authorities alone.
system_authorities=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
[ ! -r "$system_authorities" ] ||
    export NODE_EXTRA_CA_CERTS="${NODE_EXTRA_CA_CERTS:-$system_authorities}"

install_axe() {
    has_changed "$settings/package-lock.json" "$axe" || return 0
    mkdir -p "$axe"
    cp "$settings/package.json" "$settings/package-lock.json" "$axe/"
    (cd "$axe" && npm ci --silent --no-audit --no-fund) || die "npm could not install axe-core"
    note_installed "$settings/package-lock.json" "$axe"
}

# The cluster prints the addresses of the page and of the race board.
read_addresses() {
    page=$(sed -nE 's/^ +page +(http.*)/\1/p' "$out/cluster.txt")
    board=$(sed -nE 's/^ *race board +(http.*)/\1/p' "$out/cluster.txt")
    [ -n "$page" ] && [ -n "$board" ] || die "the cluster printed no address"
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
start_cluster 'race board' --board --replicas 1
read_addresses
AXE="$axe/node_modules/axe-core/axe.min.js" node "$settings/check.mjs" "page=$page" \
    "board=$board" "report=file://$out/report/index.html" "learn=file://$out/learn/index.html"
