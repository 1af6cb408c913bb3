# Set-up and build in one word each. `make` alone puts the three binaries into build/bin.
BUILD ?= build
PREFIX ?= install
LASTFLOP_CUDA ?= auto
# Arguments for ctest, e.g. TESTS='-L unit'.
TESTS ?=

.PHONY: build setup configure run test install clean
.DEFAULT_GOAL := build

setup:
	@LASTFLOP_CUDA=$(LASTFLOP_CUDA) tools/setup.sh

# Nothing to do, fast, where the tree is for this LASTFLOP_CUDA.
configure: setup
	@tools/configure.sh $(BUILD) $(LASTFLOP_CUDA)

build: configure
	@cmake --build $(BUILD) --target lastflop_binaries

run: build
	@$(BUILD)/bin/lastflop run experiments/quickstart.yaml

test: configure
	@cmake --build $(BUILD)
	@ctest --test-dir $(BUILD) --output-on-failure $(TESTS)

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf $(BUILD)
