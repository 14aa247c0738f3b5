#!/usr/bin/env bash
#
# Runs the programs of the tests, two at a time. Most of what they do is wait for servers and
# leases, and one after the other leaves the processors idle.
#
#   two_at_a_time.sh ARGS    has `cargo test ARGS` build them, and runs each where cargo would
#
# Programs that run whole fleets fill the machine alone, and measure what it does: they come last,
# one at a time.
#
# What a program prints comes when it has ended, whole. Exit code 0 only if all ended with 0. With
# TEST_TIMES=1 each test's line ends with its duration, as in `ok <1.234s>`.
set -eu -o pipefail

self=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
alone='/deps/(board|smoke|service)-[0-9a-f]+ '
case "${1-}" in
  # Cargo calls this instead of running a program, in the folder of the program's package.
  --note)
    shift
    printf 'cd %q && export CARGO_MANIFEST_DIR=$PWD && exec ' "$PWD" >>"$PROGRAMS"
    printf '%q ' "$@" >>"$PROGRAMS"
    printf '\0' >>"$PROGRAMS"
    exit 0 ;;
  # One of the programs that were noted.
  --run)
    said=$(mktemp) && trap 'rm -f "$said"' EXIT
    code=0 times=
    # Stable libtest can tell durations; the variable is what it asks for, of no other consequence
    # for a program that is built. Programs with a harness of their own read TEST_TIMES.
    if [ -n "${TEST_TIMES-}" ] &&
        bash -c "$2 --help" </dev/null | grep -e --report-time >/dev/null; then
      times='-Z unstable-options --report-time'
      export RUSTC_BOOTSTRAP=1
    fi
    bash -c "$2 $times" >"$said" 2>&1 </dev/null || code=$?
    printf '\n     Ran %s(%d s, exit code %d)\n' "${2#*&& exec }" "$SECONDS" "$code"
    cat "$said"
    exit $((code != 0)) ;;
esac

export PROGRAMS
PROGRAMS=$(mktemp) && trap 'rm -f "$PROGRAMS"' EXIT
cargo --config "target.'cfg(all())'.runner=['$self', '--note']" test "$@"
[ -s "$PROGRAMS" ] || { echo "cargo named no program of tests" >&2; exit 1; }
code=0
{ grep -zvE "$alone" "$PROGRAMS" || true; } | xargs -0 -r -n 1 -P 2 "$self" --run || code=$?
{ grep -zE "$alone" "$PROGRAMS" || true; } | xargs -0 -r -n 1 -P 1 "$self" --run || code=$?
exit "$code"
