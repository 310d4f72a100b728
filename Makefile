# Fenceline. `make` lists the targets.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO       ?= go
CLANG    ?= clang-19
# A count, not a duration: go test can take the end of a duration for a failure of the target.
FUZZTIME ?= 100000x
BENCH    ?= .
TESTFLAGS ?=
# The emulator is about ten times slower under the race detector, so the long loops are cut by -short.
RACEFLAGS ?= -short -timeout 30m

# go-nvml wraps functions that NVML's header marks as deprecated; the warnings are not ours to act on.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

.PHONY: help build test race test-gpu lint ptx ptx-check check fuzz bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 14

build: ## compile every package, and bin/demo
	$(GO) build ./...
	$(GO) build -o bin/demo ./cmd/demo

test: ## all tests; those that need a GPU skip without one
	$(GO) test $(TESTFLAGS) ./...

race: ## all tests under the race detector (RACEFLAGS)
	$(GO) test -race $(RACEFLAGS) ./...

test-gpu: ## all tests; those that need a GPU fail without one
	REQUIRE_GPU=1 $(GO) test -count=1 $(TESTFLAGS) ./...

lint: ## gofmt, vet, staticcheck, go.mod tidy
	@unformatted="$$(gofmt -l .)"; if [ -n "$$unformatted" ]; then echo "gofmt -w these:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	CGO_ENABLED=0 $(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) mod tidy -diff

ptx: ## rebuild the committed PTX from the CUDA sources (CLANG, clang-19)
	$(GO) run ./kernels/mkptx -clang '$(CLANG)'

ptx-check: ## rebuild the PTX and compare it with what is committed
	$(GO) run ./kernels/mkptx -check -clang '$(CLANG)'

check: lint build ## lint, build with and without cgo, test, compare the PTX
	CGO_ENABLED=0 $(GO) build ./...
	$(GO) test $(TESTFLAGS) ./...
	@if command -v '$(CLANG)' >/dev/null; then $(MAKE) --no-print-directory ptx-check; \
	else echo "NOT DONE: comparing the PTX with its sources, $(CLANG) is absent (apt-get install $(CLANG))"; fi

# Fuzz targets are found in the sources, because one go test run can fuzz only one of them.
fuzz: ## give each fuzz target FUZZTIME inputs
	@targets="$$(grep -rE '^func Fuzz[A-Za-z0-9_]+\(' --include='*_test.go' . | sed -E 's|^(.*)/[^/]+:func (Fuzz[A-Za-z0-9_]+).*|\1 \2|')"; \
	while read -r dir name; do \
		echo "== $$name in $$dir"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$dir"; \
	done <<< "$$targets"

bench: ## all benchmarks, or those that match BENCH
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...

clean: ## remove what was built
	rm -rf bin
