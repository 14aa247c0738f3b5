#!/usr/bin/env bash
# Builds the site of all pages into target/book/.
# mdBook is installed once, into target/tools/.
set -eu
version=0.5.4
cd "$(dirname "$0")/.."
pages=target/book-pages
mdbook=target/tools/bin/mdbook
if [ "$("$mdbook" --version 2>/dev/null)" != "mdbook v$version" ]; then
  cargo install mdbook --version "$version" --locked --quiet --no-default-features \
    --features search --root target/tools
fi
rm -rf "$pages" target/book
mkdir -p "$pages"
git ls-files --cached --others --exclude-standard -z '*.md' 'docs/*.png' '*/examples/*.rs' |
  xargs -0 cp --parents -t "$pages"
cp docs/book.toml "$pages/"
rm "$pages/docs/SUMMARY.md"
# The site begins above docs/, so that README and CONTRIBUTING are pages of it.
sed -E -e 's|\]\(\.\./|](|; t' -e 's|\]\(([^)]+)\)|](docs/\1)|' docs/SUMMARY.md |
  while IFS= read -r line; do
    printf '%s\n' "$line"
    if [[ $line == *"(docs/decisions/README.md)" ]]; then
      for record in docs/decisions/[0-9]*.md; do
        printf '  - [%s](%s)\n' "$(sed -n '1s/^# //p' "$record")" "$record"
      done
    elif [[ $line == "- [The kinds]()" ]]; then
      sed -nE 's/^\| \[([a-z-]+)\]\(.*/  - [\1](docs\/locks\/\1.md)/p' docs/locks/guarantees.md
    fi
  done > "$pages/SUMMARY.md"
# mdBook makes index.html of a README.md, and does not change the links to it.
find "$pages" -name '*.md' ! -name SUMMARY.md -exec \
  sed -Ei 's|(\]\([^)]*)README\.md|\1index.md|g' {} +
"$mdbook" build "$pages"
if [ -d target/doc ]; then cp -r target/doc target/book/api; fi
echo "target/book/index.html"
