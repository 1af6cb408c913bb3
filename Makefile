# Set-up and build in one word each. `make` alone puts the three binaries into build/bin.
BUILD ?= build
PREFIX ?= install
LASTFLOP_CUDA ?= auto
# Arguments for ctest, e.g. TESTS='-L unit'.
TESTS ?=

.PHONY: build setup run test install clean
.DEFAULT_GOAL := build

setup:
	@LASTFLOP_CUDA=$(LASTFLOP_CUDA) tools/setup.sh

$(BUILD)/build.ninja: | setup
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DLASTFLOP_CUDA=$(LASTFLOP_CUDA)

build: setup $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target lastflop_binaries

run: build
	@$(BUILD)/bin/lastflop run experiments/quickstart.yaml

test: setup $(BUILD)/build.ninja
	@cmake --build $(BUILD)
	@ctest --test-dir $(BUILD) --output-on-failure $(TESTS)

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf $(BUILD)
