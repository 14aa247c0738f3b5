#!/usr/bin/env bash
# Runs a command and prints a line at least every ten seconds.
#
#   with_progress.sh COMMAND ARGS
#
# Of cargo it is its progress: on a terminal cargo's own bar. Elsewhere cargo draws none, and is
# silent while the last large packages compile. So it draws one into a pipe, and this prints its
# state. Of another command a line says that it still runs.
set -eu -o pipefail

bars='*\[*\]*/*:*'
case $1 in
  cargo)
    [ ! -t 2 ] || exec "$@"
    export CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH=100 ;;
  *) bars='none' ;;
esac

every=10 bar= said=$SECONDS
"$@" 2>&1 | stdbuf -o0 tr '\r' '\n' | while true; do
  code=0
  IFS= read -r -t "$every" line || code=$?
  case $code:$line in
    # shellcheck disable=SC2254  # a pattern
    0:$bars) bar=$line; (( SECONDS - said < every )) && continue ;;
    0:*) ;;
    1:) break ;;
    *) line=${bar:-"still running after $SECONDS s: $*"} ;;
  esac
  printf '%s\n' "${line//$'\e[K'/}"
  said=$SECONDS
done
