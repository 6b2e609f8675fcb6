# Every target first installs what it needs (scripts/setup), and says so. `make` alone lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo demo-chained demo-hosts demo-cluster conformance test quick build bench bench-engine bench-datapath differential faults package image manifests fmt docs lint mutants fuzz upgrade upgrade-fixture setup

export CASES KERNEL_CASES SEED FRESH_SEED LOAD_EDITS LOAD_KILLS LOAD_LOOKUPS LOAD_FLOWS FUZZ_SECONDS TARGET_NAME NO_SKIPS BASE FILES SHARD JOBS

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

setup: ## install what is missing: Debian packages, Rust
	@scripts/setup

demo: setup ## watch policy being enforced between real workloads (as root, by sudo)
	@scripts/demo

demo-chained: setup ## the second demo: the commands of docs/chained.md, policy after another CNI plugin
	@scripts/demo-chained

demo-hosts: setup ## protecting a host: the steps of docs/hosts.md, from audit to enforced (as root, by sudo)
	@scripts/demo --hosts

demo-cluster: setup ## the third demo: a Kubernetes cluster of two nodes, with Palisade installed in it (as root, by sudo)
	@scripts/demo-cluster

conformance: setup ## the suites of Kubernetes and of the Network Policy API, on one node and on two; writes docs/conformance.md (an hour and a half)
	@scripts/conformance

test: ## every ring of proof: house, pure, kernel, differential, faults, package
	@scripts/setup --test --lint
	@scripts/test

quick: ## after each edit: format, clippy, house rules, and the tests of the crates that changed; no root
	@scripts/setup --test
	@scripts/quick

build: setup ## the palisade command and its CNI plugin, optimised: target/release/palisade, …/palisade-cni
	@scripts/cargo build --locked --release -p palisade -p palisade-cni

package: setup ## static programs in a Debian package: target/package
	@scripts/package

bench: setup ## every bench; figures in target/bench.jsonl
	@scripts/program bench --release --root -- all

bench-engine: setup ## the engine's benches only
	@scripts/program bench --release -- engine

bench-datapath: setup ## the datapath's benches only (as root, by sudo)
	@scripts/program bench --release --root -- datapath

differential: setup ## oracle, tables and kernel on random cases (CASES=N KERNEL_CASES=N SEED=S)
	@scripts/test differential

faults: setup ## every named fault must be caught
	@scripts/test faults

fmt: setup ## format the code
	@scripts/cargo fmt --all

docs: setup ## write what is made from code: configuration, man pages, API, dialects, metrics, the chart's roles and schema, its manifests
	@PALISADE_BLESS=1 scripts/cargo test --locked --quiet -p palisade-config -- the_document
	@PALISADE_BLESS=1 scripts/cargo test --locked --quiet -p palisade-agent -- the_document the_page_is
	@PALISADE_BLESS=1 scripts/cargo test --locked --quiet -p palisade-kubernetes -- the_document
	@PALISADE_BLESS=1 scripts/cargo test --locked --quiet -p palisade-dialects --test integration -- fields::document
	@PALISADE_BLESS=1 scripts/cargo test --locked --quiet -p palisade --bin palisade man_pages
	@scripts/manifests --if-helm

manifests: setup ## the chart rendered with its default values: deploy/palisade.yaml, deploy/palisade-cleanup.yaml (builds helm)
	@scripts/manifests

image: setup ## a container image of the static programs: target/image
	@scripts/image

lint: ## format check, clippy, dependencies (installs cargo-deny)
	@scripts/setup --lint
	@scripts/lint

mutants: ## mutation tests of the product files that differ from BASE=origin/main, or of CRATES="palisade-dialects …" (FILES, SHARD=0/20, JOBS; installs cargo-mutants)
	@scripts/setup --mutants
	@scripts/mutants $(CRATES)

fuzz: setup ## fuzz the parsers (FUZZ_SECONDS=300 each, TARGET_NAME=one); what is kept in fuzz/corpus is replayed by every test run
	@scripts/fuzz

upgrade: setup ## build the package of the former release and upgrade it under traffic (as root, by sudo)
	@scripts/test upgrade

upgrade-fixture: setup ## record again what the former release leaves, which the kernel tests take over (as root, by sudo)
	@scripts/upgrade-fixture
