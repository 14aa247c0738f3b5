#!/bin/sh
# The entrypoint of the laboratory's image: `demo` is what `make demo` runs; anything else is a
# command of loadtest. Reports go to the folder /report.
set -eu

case ${1-} in
    demo)
        shift
        echo "lab: the report goes to /report, with docker compose to target/report here"
        set -- matrix --story --report-dir /report "$@"
        ;;
esac
exec loadtest "$@"
