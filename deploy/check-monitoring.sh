#!/bin/sh
# Checks deploy/monitoring/ with promtool: the alert rules, their tests, and the expressions of the
# dashboard. promtool is taken from PATH, else from the package `prometheus`, which is unpacked in
# target/tools/promtool/ and not installed.
# Exit codes: 0 all is well, 1 something is not, 2 promtool or jq is missing.
set -eu
cd "$(dirname "$0")/.."
tools=$PWD/target/tools/promtool

die() {
    echo "check-monitoring: $*" >&2
    exit 2
}

fetch() {
    mkdir -p "$tools"
    (cd "$tools" && apt-get download -q prometheus && dpkg -x prometheus_*.deb . && rm -f ./*.deb) \
        >"$tools.log" 2>&1
}

PATH=$PATH:$tools/usr/bin
command -v promtool >/dev/null || fetch ||
    die "promtool is missing, and its package could not be fetched: $tools.log"
command -v jq >/dev/null || die "jq is missing; apt-get install jq brings it"

cd deploy/monitoring
promtool check rules alerts.yml
promtool test rules alerts_test.yml

# Grafana replaces its variables; here they have the values of a panel.
rules=$(mktemp)
trap 'rm -f "$rules"' EXIT
jq '{groups: [{name: "dashboard", rules: [
    .panels[] | select(.type != "row") | . as $panel | .targets | to_entries[] | {
      record: "panel:\($panel.id)_\(.key)",
      expr: (.value.expr | gsub("\\$__rate_interval"; "1m") | gsub("\\$job"; "seckill"))
    }]}]}' dashboard.json >"$rules"
promtool check rules "$rules"
