# A thin face over meson and tools/; `make help` lists the targets.

MESON = /usr/bin/meson
SECONDS ?= 60
TREE_VERSION = $(shell sed -n "s/^ *version: '\(.*\)',/\1/p" meson.build)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1 \2/p' Makefile | while read t d; do printf 'make %-10s %s\n' "$$t" "$$d"; done

build: ## compile build/portolan
	@tools/deps build
	@test -f build/build.ninja || $(MESON) setup build --buildtype=debugoptimized >/dev/null || \
		{ cat build/meson-logs/meson-log.txt; exit 1; }
	@ninja -C build --quiet portolan

demo: ## a three-node lab that shows each kind of mapping at work (root)
	@tools/deps demo
	@$(MAKE) --no-print-directory build
	@lab/demo

demo-down: ## remove every trace of the demo (root)
	@lab/demo --down

check: ## every check and test; last line: N passed, N failed, N skipped (root)
	@tools/deps check $(if $(findstring api,$(ALSO)),api)
	-@$(if $(findstring switch,$(ALSO)),tools/deps kernel) # without it that stage alone fails
	@tools/check $(if $(ALSO),--also $(ALSO))

check-api: ## the tests that need a real API server; the first time builds one (root)
	@tools/deps check api
	@tools/check --only api,lab-api,traffic-api

image: ## an OCI image in build/portolan.oci.tar
	@$(MAKE) --no-print-directory build
	@deploy/image/build build/portolan $(TREE_VERSION) build/portolan.oci.tar

bird-image: ## an OCI image of Debian's BIRD in build/bird.oci.tar
	@mkdir -p build
	@deploy/image/build --bird build/bird.oci.tar

release: ## VERSION=x.y.z: manifests, chart, CRDs, image and checksums in dist/
	@tools/deps build api
	@tools/release $(VERSION)

bench: ## the figures of docs/performance.md (root)
	@tools/deps check
	@$(MAKE) --no-print-directory build
	@ninja -C build --quiet bench-tools
	@tests/bench/run
	@tests/bench/proxy
	@tests/bench/balancer
	@tests/bench/ipvs

fuzz: ## search for new crashing inputs, SECONDS=60 for each target
	@tools/deps check
	@tools/fuzz $(SECONDS)

format: ## lay out all C code by .clang-format
	@find src tests -name '*.[ch]' -exec clang-format -i {} +

clean: ## remove everything built
	@rm -rf build build-* dist

.PHONY: help build demo demo-down check check-api image bird-image release bench fuzz format clean
