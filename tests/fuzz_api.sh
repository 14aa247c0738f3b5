#!/bin/bash
#
# Generates requests from /openapi.json, and compares each answer of the service with it. There are
# six ways: at a replica and through HAProxy, each without a token, as a user and as an admin.
# The generator is Schemathesis, at the versions of tests/fuzz_api/requirements.txt.
# The first run installs it into target/schemathesis/ with pip. `loadtest up` starts all servers.
#
#   EXAMPLES  requests for each operation, and walks along links: 1000 if it is not set.
#   SEED      which requests are generated: 1 if it is not set.
#   WAYS      some of the six, as in WAYS="direct-user proxy-admin".
#   BOUNDS    ways that also get requests at every bound of the schema: all if it is not set.
#   PROGRAMS  the folder of seckill and loadtest: target/debug if it is not set.
#
# Exit codes: 0 nothing differs, 1 something differs, 2 something needed is missing.
set -eu -o pipefail

examples=${EXAMPLES:-1000}
seed=${SEED:-1}
programs=${PROGRAMS:-target/debug}
ways=${WAYS:-direct-none direct-user direct-admin proxy-none proxy-user proxy-admin}
bounds=${BOUNDS-$ways}
settings=$PWD/tests/fuzz_api
venv=$PWD/target/schemathesis
out=$PWD/target/fuzz-api
script=fuzz-api
# shellcheck source=tests/own_cluster.sh
. tests/own_cluster.sh

install_generator() {
    has_changed "$settings/requirements.txt" "$venv" || return 0
    rm -rf "$venv"
    python3 -m venv "$venv" >/dev/null ||
        die "python3 or its venv is missing; apt-get install python3-venv brings both"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
        --requirement "$settings/requirements.txt" || die "pip could not install the generator"
    note_installed "$settings/requirements.txt" "$venv"
}

# The cluster prints its addresses as lines to paste, and where the tokens of its users are.
read_addresses() {
    eval "$(grep -E '^export (BASE|R1|ADMIN)=' "$out/cluster.txt")"
    buyers=$(sed -nE "s/.*--tokens '?([^' ]+).*/\1/p" "$out/cluster.txt")
}

# The token of that line.
buyer_token() {
    sed -nE "$1"' s/.*"token":"([^"]*)".*/\1/p' "$buyers"
}

# Sends the requests of one way, as the buyer of that line.
run_way() (
    way=$1 url=$R1 token='' phases=examples,fuzzing,stateful
    [ "${way%-*}" = direct ] || url=$BASE
    [[ " $bounds " != *" $way "* ]] || phases=coverage,$phases
    case ${way#*-} in
        user) token=$(buyer_token "$2") ;;
        admin) token=$ADMIN ;;
    esac
    # The generator leaves files where it runs.
    cd "$out"
    export FUZZ_TOKEN=$token SCHEMATHESIS_HOOKS=hooks PYTHONPATH=$settings
    FUZZ_PASSING_TOKEN=$(buyer_token 1)
    export FUZZ_PASSING_TOKEN PYTHONDONTWRITEBYTECODE=1
    "$venv/bin/schemathesis" --config-file "$settings/schemathesis.toml" \
        run "$url/openapi.json" --phases "$phases" --max-examples "$examples" --seed "$seed" \
        --no-color --report json --report-json-path "$way.json" >"$way.txt" 2>&1
)

# Prints the figures of a way; fails if answers differed or operations were left out.
print_figures() {
    "$venv/bin/python" "$settings/figures.py" "$1" "$out/$1.json"
}

rm -rf "$out"
mkdir -p "$out"
install_generator
start_cluster ' --tokens ' --replicas 2
read_addresses
failed=0
# The first buyer's token is the one that logging out ends.
line=1
for way in $ways; do
    line=$((line + 1)) status=0
    run_way "$way" "$line" || status=$?
    if ! print_figures "$way" || [ "$status" != 0 ]; then
        failed=$((failed + 1))
        echo "fuzz-api: $way: exit code $status of the generator; all it says: $out/$way.txt"
        sed -n '/= FAILURES =/,/= WARNINGS =/p' "$out/$way.txt" | cut -c 1-500 | head -n 60
    fi
done
of="$(wc -w <<<"$ways") ways; $examples examples an operation, seed $seed"
[ "$failed" = 0 ] || { echo "fuzz-api: FAILED: answers differ in $failed of $of" && exit 1; }
echo "fuzz-api: passed: no answer differs in $of"
