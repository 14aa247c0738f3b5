#!/usr/bin/env bash
# Runs a command of cargo and prints its progress at least every ten seconds.
#
#   with_progress.sh cargo build ARGS
#
# On a terminal that is cargo's own bar. Elsewhere cargo draws none, and is silent while the last
# large packages compile. So it draws one into a pipe, and this prints its state.
set -eu -o pipefail

[ ! -t 2 ] || exec "$@"
export CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH=100

every=10 bar= said=$SECONDS
"$@" 2>&1 | stdbuf -o0 tr '\r' '\n' | while true; do
  code=0
  IFS= read -r -t "$every" line || code=$?
  case $code:$line in
    0:*\[*\]*/*:*) bar=$line; (( SECONDS - said < every )) && continue ;;
    0:*) ;;
    1:) break ;;
    *) line=$bar ;;
  esac
  printf '%s\n' "${line//$'\e[K'/}"
  said=$SECONDS
done
