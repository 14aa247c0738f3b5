#!/usr/bin/env bash
# Runs the RUN lines of the Dockerfile's build stages without an engine. Their folder has the files
# that their COPY lines name and .dockerignore lets through. So a file that cargo needs and the
# image lacks is found. PROFILE is dev, and the libraries compiled in target/ are used again. The
# project's own packages are not: without debug information they are other units for cargo. Their
# programs go to target/image/, beside those of the tests. And cargo would watch files below target/
# in place of the checkout's, so the folder is elsewhere.
#
#   deploy/try/check-image.sh [FOLDER]    of a checkout; default: this one
#
# It knows the instructions that this Dockerfile uses; anything else is an error.
# Exit codes: 0 the commands succeed, 1 one does not, 2 the Dockerfile cannot be read.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
own=$PWD
cd "${1:-.}"
scratch=$(mktemp -d)
folder=$scratch/build
trap 'rm -rf "$scratch"' EXIT

die() {
  echo "check-image: $*" >&2
  exit 2
}

# The lines of stages on the rust image, with continued lines joined and without comments.
instructions() {
  sed -E '/^ *#/d' Dockerfile | sed -E ':a; /\\$/ { N; s/\\\n/ /; ba }' | awk '
    $1 == "FROM" { builds = $2 ~ /^rust:/ || $2 in names; if (builds) names[$4] }
    builds && NF'
}

# Prints those paths of stdin that .dockerignore lets through: the last pattern that matches a path
# or a folder above it decides.
let_through() {
  awk '
    NR == FNR {
      if ($0 == "" || $0 ~ /^#/) next
      keep[++n] = sub(/^!/, "")
      gsub(/\./, "\\."); gsub(/\*\*\//, "\001"); gsub(/\*/, "[^/]*"); gsub(/\?/, "[^/]")
      gsub("\001", "(.*/)?")
      pattern[n] = "^" $0 "(/.*)?$"
      next
    }
    {
      kept = 1
      for (i = 1; i <= n; i++) if ($0 ~ pattern[i]) kept = keep[i]
      if (kept) print
    }' .dockerignore -
}

# COPY, of the files in the list.
copy() { # SOURCE... TARGET
  local target=${*: -1} source file found
  for source in "${@:1:$#-1}"; do
    source=${source#./} found=
    while IFS= read -r file; do
      case $source:$file in
        .:*) to=$target/$file ;;
        "$file:$file") case $target in */ | .) to=$target/${file##*/} ;; *) to=$target ;; esac ;;
        "$source:${source%/}/"*) to=$target/${file#"${source%/}/"} ;;
        *) continue ;;
      esac
      [ -e "$file" ] || continue
      found=1
      mkdir -p "$(dirname "$folder/$to")"
      cp -Pp "$file" "$folder/$to"
    done <"$folder.files"
    [ -n "$found" ] || { echo "check-image: no file for COPY $source" >&2; exit 1; }
  done
}

# RUN, without its mounts.
run() { # COMMAND
  echo "check-image: $1"
  (
    cd "$folder"
    export PROFILE=dev CARGO_PROFILE_DEV_DEBUG=false
    export CARGO_BUILD_BUILD_DIR=$own/target CARGO_TARGET_DIR=$own/target/image
    bash -eu -c "$1"
  ) ||
    { echo "check-image: that fails in a folder with the image's files only" >&2; exit 1; }
}

# `target/$PROFILE` is `target/debug` for the profile dev.
mkdir -p "$folder/target"
ln -s "$own/target/image/debug" "$folder/target/dev"
git ls-files --cached --others --exclude-standard | let_through >"$folder.files"
instructions >"$folder.instructions"
ran=
while read -r instruction rest; do
  case $instruction in
    FROM | ARG | WORKDIR) ;;
    COPY)
      # shellcheck disable=SC2086  # a list of words
      case $rest in *--*) die "not known: COPY $rest" ;; *) copy $rest ;; esac
      ;;
    RUN)
      while [[ $rest == --mount=* ]]; do rest=${rest#* }; rest=${rest#"${rest%%[! ]*}"}; done
      run "$rest" </dev/null
      ran=1
      ;;
    *) die "not known: $instruction $rest" ;;
  esac
done <"$folder.instructions"
[ -n "$ran" ] || die "the Dockerfile has no RUN on the rust image"

channel=$(sed -nE 's/^channel *= *"(.*)"/\1/p' rust-toolchain.toml)
grep -q "^FROM rust:$channel-" Dockerfile || {
  echo "check-image: the Dockerfile has another Rust than rust-toolchain.toml, $channel" >&2
  exit 1
}
