#!/bin/sh
# Purpose: brings a node of Galera what it missed, which another node still remembers (IST).
# The server calls it on both: the one that joins says where it waits, and the one that gives
# says up to where the joining one is right. Both share the folder of this script. A node that
# lacks more than that one remembers gets nothing: that would be a copy of all files.
set -eu
role='' address='' position='' parent='' bypass=''
while [ $# -gt 0 ]; do
    case $1 in
    --role) role=$2 && shift ;;
    --address) address=$2 && shift ;;
    --gtid) position=$2 && shift ;;
    --parent) parent=$2 && shift ;;
    --bypass) bypass=yes ;;
    esac
    shift
done
file=$(dirname "$0")/transfer-$(printf %s "$address" | tr -c 'a-zA-Z0-9' _)
case $role in
joiner)
    rm -f "$file"
    echo "ready $address"
    until [ -f "$file" ]; do
        kill -0 "$parent" || exit 1
        sleep 0.05
    done
    cat "$file"
    ;;
donor)
    if [ -z "$bypass" ]; then
        echo "the node that joins lacks more than this one remembers" >&2
        exit 1
    fi
    echo continue
    echo "$position" >"$file.new"
    mv "$file.new" "$file"
    echo "done $position"
    ;;
esac
