#!/usr/bin/env bash
# Builds deploy/kubernetes/ with kustomize, and checks it with kubeconform against the schemas of a
# release of Kubernetes. All three come as Go modules into target/tools/kubernetes/, once. After
# that it needs no network. Then it breaks the manifests in five ways, and each has to be refused.
#
#   deploy/check-kubernetes.sh    needs jq; a Go that is too old is not used (clients/prepare.sh)
#
# Exit codes: 0 all is well, 1 a manifest is wrong, 2 something is missing.
set -eu -o pipefail
cd "$(dirname "$0")/.."
# The newest that the Go of clients/prepare.sh builds, and the release whose schemas count.
kustomize=v5.8.1 kubeconform=v0.7.0 kubernetes=v1.34.4
tools=$PWD/target/tools/kubernetes
schemas=$tools/schemas-$kubernetes
work=$PWD/target/check-kubernetes

die() {
  echo "check-kubernetes: $*" >&2
  exit 2
}

fetch() {
  clients/prepare.sh gotools
  PATH=$PWD/target/clients/bin:$PATH
  export GOPATH=$tools/go GOCACHE=$tools/cache GOBIN=$tools GOFLAGS=-modcacherw
  echo "check-kubernetes: kustomize, kubeconform and the schemas are fetched" >&2
  go install "sigs.k8s.io/kustomize/kustomize/v5@$kustomize" 2>"$tools/log" ||
    die "go could not build kustomize: $tools/log"
  go install "github.com/yannh/kubeconform/cmd/kubeconform@$kubeconform" 2>"$tools/log" ||
    die "go could not build kubeconform: $tools/log"
  local source
  source=$(go mod download -json "k8s.io/kubernetes@$kubernetes" | jq -er .Dir) ||
    die "go could not fetch the schemas of Kubernetes $kubernetes"
  rm -rf "$schemas.new" "$schemas"
  mkdir "$schemas.new"
  jq -cf deploy/kubernetes/schemas.jq "$source/api/openapi-spec/swagger.json" |
    jq -r 'to_entries[] | .key, (.value | tojson)' |
    while IFS= read -r name && IFS= read -r schema; do
      printf '%s\n' "$schema" >"$schemas.new/$name"
    done
  # Only the programs and the schemas are needed from here on.
  rm -rf "$tools/go" "$tools/cache"
  mv "$schemas.new" "$schemas"
}

build() {
  "$tools/kustomize" build --load-restrictor LoadRestrictionsNone "$work/deploy/kubernetes/$1"
}

# Reads manifests.
conforms() {
  "$tools/kubeconform" -strict -summary \
    -schema-location "$schemas/{{.ResourceKind}}{{.KindSuffix}}.json"
}

# What a mistake makes of the manifests has to be refused.
refuses() { # NAME SED-SCRIPT
  sed "$2" "$work/try.yaml" >"$work/broken.yaml"
  ! cmp -s "$work/try.yaml" "$work/broken.yaml" || die "the mistake \"$1\" changes nothing"
  ! conforms <"$work/broken.yaml" >"$work/refused.txt" 2>&1 || {
    echo "check-kubernetes: the mistake \"$1\" was not seen" >&2
    exit 1
  }
}

command -v jq >/dev/null || die "jq is missing; apt-get install jq brings it"
mkdir -p "$tools"
[ -d "$schemas" ] || fetch

# A copy with secrets of its own.
rm -rf "$work"
mkdir -p "$work/deploy"
cp -r deploy/haproxy.cfg deploy/redis.acl deploy/kubernetes "$work/deploy/"
rm -f "$work/deploy/kubernetes/try/secrets.env"
"$work/deploy/kubernetes/try/new-secrets.sh" >/dev/null
for overlay in base try; do
  build "$overlay" >"$work/$overlay.yaml" || exit 1
  conforms <"$work/$overlay.yaml" || exit 1
done
refuses "a field that does not exist" 's/readinessProbe:/readynessProbe:/'
refuses "a text for a number" 's/minReadySeconds: 10/minReadySeconds: soon/'
refuses "a quantity without a unit that exists" 's/memory: 512Mi/memory: 512MB/'
refuses "a kind of another version" 's|autoscaling/v2|autoscaling/v3|'
refuses "a budget without what it needs" 's/scaleTargetRef:/target:/'
