#!/bin/bash
#
# What the scripts of this folder share that ask a cluster of their own. They source this file with
# `script` (what it says before a message), `programs`, the folder of seckill and loadtest, and
# `out`, the folder for what is printed.

start_limit_s=120

die() {
    echo "$script: $*" >&2
    exit 2
}

# Whether that list of versions is not the one that was installed into the folder.
has_changed() {
    ! cmp -s "$1" "$2/installed.txt"
}

note_installed() {
    cp "$1" "$2/installed.txt"
}

free_port() {
    python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])'
}

# Starts `loadtest up` with the further arguments, until the script ends. Waits for the text that
# the cluster prints when it is ready.
start_cluster() {
    local ready=$1
    shift
    "$programs/loadtest" up "$@" --port "$(free_port)" >"$out/cluster.txt" 2>&1 &
    cluster=$!
    trap 'kill -INT "$cluster" 2>/dev/null || true; wait "$cluster" || true' EXIT
    for _ in $(seq "$((start_limit_s * 10))"); do
        ! grep -qs -e "$ready" "$out/cluster.txt" || return 0
        kill -0 "$cluster" 2>/dev/null || { cat "$out/cluster.txt" >&2 && die "no cluster"; }
        sleep 0.1
    done
    die "no cluster within $start_limit_s s"
}
