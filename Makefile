# Bare `make` lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
GO ?= go
TOOLS := $(CURDIR)/.tools
# Folder of the nats.go conformance runner (see docs/conformance.md).
CONFORMANCE ?= ../shared/conformance

.PHONY: help build test race check fmt vet lint fuzz bench bench-cluster conformance crash soak soak-cluster chaos demo cluster clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

build: ## build brokerd and pubsub into this folder
	$(GO) build -trimpath -o brokerd ./cmd/brokerd
	$(GO) build -trimpath -o pubsub ./cmd/pubsub

test: ## all tests, as in the README
	$(GO) test ./...

# The packages with goroutines, locks or atomics of their own.
race: ## tests of the concurrent packages under the race detector, short
	$(GO) test -race -short $$(git grep -lE '\.Go\(|^[[:space:]]+go |sync\.(RW)?Mutex|atomic\.' -- topics replication operators broker client \
	  | grep -v '_test\.go$$' | grep '\.go$$' | xargs -n1 dirname | sort -u | sed 's|^|./|')

check: fmt vet lint test ## everything CI runs but the race detector

fmt: $(TOOLS)/gofumpt ## fail when a file is not formatted
	@out=$$($(TOOLS)/gofumpt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not formatted (run .tools/gofumpt -w on them):"; echo "$$out"; exit 1; fi

vet: ## go vet
	$(GO) vet ./...

lint: $(TOOLS)/staticcheck ## staticcheck, pinned in .ci/tools
	$(TOOLS)/staticcheck ./...

$(TOOLS)/%: .ci/tools/go.mod
	@mkdir -p $(TOOLS)
	cd .ci/tools && GOFLAGS= $(GO) build -o $(TOOLS)/ tool

fuzz: ## every fuzz target for FUZZTIME (30s) each
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $${FUZZTIME:-30s} $$pkg; done; done

bench: ## compare with nats-server in one run, into docs/benchmarks.md (about 20 minutes)
	$(GO) run ./tests/bench

bench-cluster: ## of these only what three nodes do, to standard output (about 10 minutes)
	$(GO) run ./tests/bench -nodes 3 -out -

conformance: build ## nats.go's own suites against brokerd (about 15 minutes)
	$(CONFORMANCE)/run.sh ./brokerd

crash: ## long form of the kill -9 and power cut tests
	HERALD_LONG=1 $(GO) test -count=1 -v -timeout 60m ./tests/crash/...

soak: ## everything at once, disturbed, for 10 minutes (HERALD_SOAK for another time)
	HERALD_LONG=1 $(GO) test -count=1 -v -timeout 60m ./tests/soak/...

soak-cluster: ## random faults against three nodes for an hour, checked to the message
	HERALD_LONG=1 $(GO) test -count=1 -v -timeout 2h ./tests/chaos -run '^Test27Soak$$'

chaos: ## every fault of docs/reliability.md against real clusters, in full (hours); TARGET=nats-server for the other
	HERALD_LONG=1 $(GO) test -count=1 -v -timeout 12h ./tests/chaos -target $${TARGET:-brokerd}
	[ -n "$$TARGET" ] || HERALD_LONG=1 $(GO) test -count=1 -v -timeout 3h ./tests/operators

demo: ## the main job: three nodes, real earthquakes and flights, primaries killed on the way
	$(GO) run ./cmd/pubsub demo

cluster: ## three nodes on this machine, until ctrl-c
	$(GO) run ./cmd/pubsub cluster dev

clean: ## remove what was built
	rm -rf brokerd pubsub $(TOOLS)
