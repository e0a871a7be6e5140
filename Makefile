# The commands of the project. `make` alone lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo demo-local demo-cluster test bench fmt lint deny generate clean

# `make demo MODE=..`: where the pool runs.
MODE ?= local
# `make demo MODE=cluster KEEP=1` leaves the cluster up.
KEEP ?=
# `make bench ONLY=store` measures the names that start so.
ONLY ?=

# Right after rustup was installed the shell does not know its folder yet.
export PATH := $(PATH):$(HOME)/.cargo/bin
BUILT := $(abspath $(or $(CARGO_TARGET_DIR),target))

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Install what is missing, build, and show a pool at work (MODE=local, MODE=cluster)
	@case '$(MODE)' in local | cluster) ;; \
	*) echo 'MODE=$(MODE) is not known; use MODE=local or MODE=cluster.' >&2; exit 2 ;; \
	esac
	@$(MAKE) --no-print-directory demo-$(MODE)

demo-local:
	@scripts/need.sh
	cargo build --package larder-cli
	@bash scripts/demo.sh '$(BUILT)/debug/larder'

demo-cluster:
	@scripts/need.sh cluster
	cargo build --package larder-cli --package larder-master --package larder-node-agent \
	--package larder-operator --package larder-e2e --bins
	@KEEP='$(KEEP)' bash scripts/demo-cluster.sh '$(BUILT)/debug'

test: ## Install what is missing and run all tests
	@scripts/need.sh
# The tests of whole systems start the programs that stand beside them, and those of a cluster need
# Kubernetes, which is compiled once. Where it cannot be, they are skipped and say why.
	cargo build --workspace --bins --tests
	@if '$(BUILT)/debug/cluster' needs; then \
	'$(BUILT)/debug/cluster' packages && '$(BUILT)/debug/cluster' build; \
	else echo 'so the tests that need a cluster are skipped' >&2; fi
	cargo test --workspace

bench: ## Measure against raw sockets and memcpy (ONLY=kv.remote, PEER=1 installs the stock peer)
	@scripts/need.sh
	$(if $(PEER),@scripts/peer.sh '$(BUILT)/bench/peer')
# The harness starts the program that stands beside it.
	cargo build --release --package larder-cli --package larder-e2e --bin larder --bin bench --bin chaos
	'$(BUILT)/release/bench' --results '$(BUILT)/bench/results.jsonl' \
	$(if $(ONLY),--only '$(ONLY)') $(if $(PEER),--peer-python '$(BUILT)/bench/peer/bin/python')

fmt: ## Format the code
	cargo fmt --all

lint: ## Check format, lints and the rules of the tree
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo test --quiet --workspace --test tidy

deny: ## Check licences, bans and sources of what is imported
	@cargo deny --version >/dev/null 2>&1 || { \
	echo 'cargo-deny is missing; run: cargo install --locked cargo-deny' >&2; exit 1; }
	cargo deny --offline check licenses bans sources

generate: ## Write the YAML of the custom resources again
	cargo run --quiet --package larder-xtask --features crdgen -- crdgen
	cargo run --quiet --package larder-xtask --features crdgen -- render

clean: ## Remove everything that was built
	cargo clean
