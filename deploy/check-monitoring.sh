#!/bin/sh
# Checks deploy/monitoring/ with promtool: the alert rules, their tests, and the expressions of the
# dashboard. promtool and jq are taken from PATH, else from their packages, which are unpacked in
# target/tools/promtool/ and not installed.
# Exit codes: 0 all is well, 1 something is not, 2 promtool or jq is missing.
set -eu
cd "$(dirname "$0")/.."
tools=$PWD/target/tools/promtool

die() {
    echo "check-monitoring: $*" >&2
    exit 2
}

# Unpacks packages; where the lists of the archive are missing or old, they are read anew.
fetch() {
    mkdir -p "$tools"
    (
        cd "$tools" && rm -f ./*.deb &&
            { apt-get -q download "$@" || { apt-get -q update && apt-get -q download "$@"; }; } &&
            for package in ./*.deb; do dpkg -x "$package" . || exit; done &&
            rm ./*.deb
    ) >"$tools.log" 2>&1 || die "$1 is missing, and could not be fetched: $tools.log"
}

PATH=$PATH:$tools/usr/bin
command -v promtool >/dev/null || fetch prometheus
command -v jq >/dev/null || fetch jq libjq1 libonig5
for libraries in "$tools"/usr/lib/*-linux-gnu*; do
    export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries"
done

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
