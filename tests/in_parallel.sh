#!/usr/bin/env bash
#
# Runs the programs of the tests, several at a time. Most of what they do is wait for servers and
# leases, and one after the other leaves the processors idle.
#
#   in_parallel.sh ARGS    has `cargo test ARGS` build them, and runs each where cargo would
#
# AT_ONCE programs run at a time: 4 if it is not set. Those that take minutes begin first. The
# tests of the service, and beside them those of the race board and the smoke run, fill the machine:
# they come last, one of each at a time.
#
# What a program prints comes when it has ended, whole, and its failures once more at the end. Every
# ten seconds a line says which of them run. Exit code 0 only if all ended with 0. With TEST_TIMES=1
# each test's line ends with its duration, as in `ok <1.234s>`.
set -eu -o pipefail

self=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
long='/deps/(injected_bugs|conformance|redis|validity|learn|loadtest_board|fairness|zookeeper|'
long+='takeover|cluster)-[0-9a-f]+ '
service='/deps/service-[0-9a-f]+ ' laboratory='/deps/(board|smoke)-[0-9a-f]+ '
case "${1-}" in
  # Cargo calls this instead of running a program, in the folder of the program's package. Its path
  # to the compiler's libraries is kept: the tests of a library of macros need them.
  --note)
    shift
    printf 'cd %q && export CARGO_MANIFEST_DIR=$PWD LD_LIBRARY_PATH=%q && exec ' \
      "$PWD" "${LD_LIBRARY_PATH-}" >>"$PROGRAMS"
    printf '%q ' "$@" >>"$PROGRAMS"
    printf '\0' >>"$PROGRAMS"
    exit 0 ;;
  # One of the programs that were noted.
  --run)
    said=$(mktemp) && trap 'rm -f "$said"' EXIT
    code=0 times=
    # Stable libtest can tell durations; the variable is what it asks for, of no other consequence
    # for a program that is built. `refused` runs the compiler, which would say other things.
    # Programs with a harness of their own read TEST_TIMES.
    if [ -n "${TEST_TIMES-}" ] && [[ $2 != */deps/refused-* ]] &&
        bash -c "$2 --help" </dev/null | grep -e --report-time >/dev/null; then
      times='-Z unstable-options --report-time'
      export RUSTC_BOOTSTRAP=1
    fi
    name=${2##*/deps/}
    touch "$RUNNING/${name%%-*}.$$"
    # Its own and that of the servers that it has awaited.
    TIMEFORMAT='%0U %0S'
    used=$({ time bash -c "$2 $times" >"$said" 2>&1 </dev/null; } 2>&1) || code=$?
    rm -f "$RUNNING/${name%%-*}.$$" && echo >>"$RUNNING.ended"
    printf '\n     Ran %s(%d s, %d s of processor time, exit code %d)\n' "${2#*&& exec }" \
      "$SECONDS" $((${used% *} + ${used#* })) "$code"
    cat "$said"
    # They are hard to find among thousands of lines, so they come once more at the end.
    [ "$code" = 0 ] || grep -hE -A 6 'panicked at|^test .*FAILED' "$said" >>"$FAILURES" || true
    exit $((code != 0)) ;;
esac

export PROGRAMS FAILURES RUNNING
PROGRAMS=$(mktemp) FAILURES=$(mktemp) RUNNING=$(mktemp -d)
trap 'kill "${telling-}" 2>/dev/null; rm -rf "$PROGRAMS" "$FAILURES" "$RUNNING"*' EXIT
cargo --config "target.'cfg(all())'.runner=['$self', '--note']" test "$@"
[ -s "$PROGRAMS" ] || { echo "cargo named no program of tests" >&2; exit 1; }
of() {
  grep -z "$@" "$PROGRAMS" || true
}
run() {
  xargs -0 -r -n 1 -P "$1" "$self" --run
}
tell() {
  while sleep 10 >/dev/null 2>&1; do
    printf '%s s: %s of %s programs ended; running: %s\n' "$SECONDS" "$(wc -l <"$RUNNING.ended")" \
      "$(tr -cd '\0' <"$PROGRAMS" | wc -c)" "$(ls "$RUNNING" | sed 's/\.[0-9]*$//' | tr '\n' ' ')"
  done
}
: >"$RUNNING.ended"
tell & telling=$!
code=0
{ of -E "$long"; of -vE "$long|$service|$laboratory"; } | run "${AT_ONCE:-4}" || code=$?
of -E "$laboratory" | run 1 & background=$!
of -E "$service" | run 1 || code=$?
wait "$background" || code=$?
[ -s "$FAILURES" ] && { printf '\nWhat failed:\n' && head -n 100 "$FAILURES"; }
exit "$code"
