#!/usr/bin/env bash
# Runs the laboratory many times while other processes keep the processors busy, and counts the
# red runs.
# Usage: loadtest/demo_soak.sh FOLDER
#
# - FIRST: the first seed of story and smoke, so that a soak can be run in parts (default 1).
# - STORY: runs of `matrix --story`, with seeds from FIRST on (default 100).
# - COMPARE: runs of `compare` (default 30).
# - SMOKE: runs of `matrix --smoke`, with seeds from FIRST on (default 10).
# - BUG_SEEDS: seeds of each injected bug, each of which must catch it (default 3; 0: no bugs).
# - BUGS: the names of these bugs (default: all).
# - BUSY: processes that spin meanwhile (default 4).
# - LONGEST_RUN_S: seconds after which a run is ended (default 1800).
#
# A red run leaves its report and its output in FOLDER. The summary counts surprises and invalid
# runs, and names each. An invalid run had no real load, and nothing else is red in it. All else is
# a surprise: a doubt about the product, a prediction that did not show, a cell that could not be
# run, a run without an end.
# Exit codes: 0 no surprise and at most 2 invalid runs in 100, 1 otherwise, 2 it could not be run.
set -u
folder=${1:?the folder for reports is missing}
first_seed=${FIRST:-1} story=${STORY:-100} compare=${COMPARE:-30} smoke=${SMOKE:-10}
# PLANTS is the former name of BUG_SEEDS.
bug_seeds=${BUG_SEEDS:-${PLANTS:-3}} busy=${BUSY:-4}
loadtest=${LOADTEST:-target/release/loadtest}
longest_run_s=${LONGEST_RUN_S:-1800}
[ -x "$loadtest" ] || { echo "there is no $loadtest" >&2; exit 2; }
mkdir -p "$folder" || exit 2

spinning=()
for _ in $(seq "$busy"); do
    # It ends with this process, however that ends.
    setpriv --pdeathsig KILL sh -c 'while :; do :; done' &
    spinning+=($!)
done
trap 'kill "${spinning[@]}" 2>/dev/null' EXIT
trap 'exit 130' INT TERM

runs=0 surprises=0 invalid=0
declare -a red=()

# run NAME FLAGS...: one run; what is red is kept and counted.
run() {
    local name=$1 status=0 first began=$SECONDS
    shift
    # In the foreground, so that Ctrl-C ends it.
    timeout --foreground -k 60 "$longest_run_s" "$loadtest" "$@" >"$folder/$name.txt" 2>&1 ||
        status=$?
    runs=$((runs + 1))
    printf '%s  %-14s exit %s, %s s\n' "$(date -u +%H:%M:%S)" "$name" "$status" $((SECONDS - began))
    if [ "$status" = 0 ]; then
        rm -rf "${folder:?}/$name" "$folder/$name".{txt,json}
        return
    fi
    first=$(grep -m 1 '^Red: ' "$folder/$name.txt" || tail -n 1 "$folder/$name.txt")
    case $status:$first in
        1:*"this was no real load"*) invalid=$((invalid + 1)) ;;
        124:* | 137:*) first="no end within $longest_run_s s: $first" ;;&
        *) surprises=$((surprises + 1)) ;;
    esac
    red+=("$name: $first")
}

for seed in $(seq "$first_seed" $((first_seed + story - 1))); do
    run "story-$seed" matrix --story --seed "$seed" --report-dir "$folder/story-$seed"
done
for number in $(seq "$compare"); do
    run "compare-$number" compare --report-dir "$folder/compare-$number"
done
for seed in $(seq "$first_seed" $((first_seed + smoke - 1))); do
    run "smoke-$seed" matrix --smoke --seed "$seed" --report-dir "$folder/smoke-$seed"
done
if [ "$bug_seeds" != 0 ]; then
    bugs=${BUGS:-$("$loadtest" inject-bugs --list | sed -n 's/^\([a-z0-9-]*\): .*/\1/p')}
    [ -n "$bugs" ] || { echo "$loadtest knows no injected bugs" >&2; exit 2; }
    for bug in $bugs; do
        run "$bug" inject-bugs --only "$bug" --seeds "$bug_seeds" --json "$folder/$bug.json"
    done
fi

echo
[ ${#red[@]} = 0 ] || printf '%s\n' "${red[@]}"
echo "$runs runs beside $busy busy processes in $SECONDS s: $surprises surprises, $invalid invalid"
[ "$surprises" = 0 ] && [ $((invalid * 50)) -le "$runs" ]
