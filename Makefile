# Arguments go through ARGS: make demo ARGS="--help"
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

report := target/report
# Warnings stop CI, and nobody at work on the code.
deny := $(if $(CI),-D warnings)

.PHONY: help demo up test test-mysql bench bench-check bench-load fmt fmt-check lint tidy \
  dev-binaries unit docs check-compose install-servers clean-report

help: ## Print this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

demo: install-servers ## Compare the locks on a private cluster; report in target/report/
	cargo build --workspace --bins --release --locked
	mkdir -p $(report)
	target/release/loadtest compare --report-dir $(report) $(ARGS)

up: install-servers ## Start a private cluster and print the web page's address; Ctrl-C ends it
	cargo build --workspace --bins --release --locked
	target/release/loadtest up $(ARGS)

test: install-servers fmt-check lint dev-binaries unit docs check-compose ## Everything CI runs

# Debian's mysqld 9 is fetched into target/mysql/; MYSQLD=/path/to/mysqld takes another one.
test-mysql: install-servers dev-binaries ## Run the tests on MySQL instead of MariaDB
	mysqld="$${MYSQLD:-$$(deploy/fetch-mysql.sh)}"; \
	  TESTBED_DATABASE=mysql MYSQLD="$$mysqld" \
	  cargo test --workspace --locked --no-fail-fast $(ARGS)

bench: install-servers ## Measure what a lock costs beside the bare commands it is made of
	cargo bench --locked -p distlock --bench lock -- $(ARGS)

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
	cargo clippy --workspace --all-targets --locked -- $(deny)

tidy: ## Check the tree's own laws: who may know whom, sizes, headers, dead files
	cargo test --locked --test tidy $(ARGS)

# The tests start target/debug/seckill and target/debug/loadtest.
dev-binaries:
	cargo build --workspace --bins --locked

unit: dev-binaries
	cargo test --workspace --locked --no-fail-fast $(ARGS)

docs: ## Build the documentation of the code
	RUSTDOCFLAGS="$(deny)" cargo doc --workspace --no-deps --locked

check-compose: ## Check docker-compose.yml, where docker compose exists
	@if docker compose version >/dev/null 2>&1; then \
	  MYSQL_ROOT_PASSWORD=x MYSQL_PASSWORD=x REDIS_PASSWORD=x JWT_SECRET=x \
	    docker compose --env-file .env.example config -q; \
	else \
	  echo "docker compose is not installed here: docker-compose.yml was not checked"; \
	fi

install-servers: ## Install what is missing of the servers for the tests (NO_INSTALL=1: refuse)
	@deploy/install-servers.sh

clean-report: ## Remove target/report/
	rm -rf $(report)
