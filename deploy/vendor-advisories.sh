#!/bin/sh
# Renews deploy/vendor/advisories/: RustSec's advisories on the crates that Cargo.lock names, for
# machines that cannot fetch the database.
#   ADVISORY_DB=/path/to/clone deploy/vendor-advisories.sh
# Exit codes: 0 renewed, 2 there is no such clone.
set -eu
cd "$(dirname "$0")/.."

snapshot=deploy/vendor/advisories
clone=${ADVISORY_DB:?names a clone of RustSec/advisory-db}
db=$(git -C "$clone" rev-parse --absolute-git-dir) || {
    echo "vendor-advisories: $clone is no clone of RustSec/advisory-db" >&2
    exit 2
}

rm -rf "$snapshot"
mkdir -p "$snapshot"
git --git-dir "$db" show HEAD:LICENSE.txt >"$snapshot/LICENSE"
cat >"$snapshot/README.md" <<END
# Files of others

Advisories of <https://github.com/RustSec/advisory-db> on the crates in \`Cargo.lock\`.
As published, not to be edited here: \`deploy/vendor-advisories.sh\` renews them.
Terms: \`LICENSE\`.

Commit: $(git --git-dir "$db" log -1 --format='%cs %H')

END
for crate in $(sed -n 's/^name = "\(.*\)"/\1/p' Cargo.lock | sort -u); do
    git --git-dir "$db" ls-tree -r --name-only HEAD -- "crates/$crate/" | while read -r file; do
        name=$(basename "$file")
        git --git-dir "$db" show "HEAD:$file" >"$snapshot/$name"
        echo "- \`$name\`: $crate" >>"$snapshot/README.md"
    done
done
echo "vendor-advisories: $(grep -c '^- ' "$snapshot/README.md") advisories"
