#!/bin/sh
# The entrypoint of the laboratory's image: `demo` is what `make demo` runs; anything else is a
# command of loadtest. Reports go to the folder /report.
set -eu

case ${1-} in
    demo)
        shift
        set -- matrix --story --report-dir /report "$@"
        ;;
esac
exec loadtest "$@"
