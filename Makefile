# The two commands of a new user: `make tune` and `make test`. Each sets up `.venv/` first, once.
SHELL := /bin/bash
# The first interpreter that runs and is new enough; a name on the PATH may be a shim without an interpreter.
PYTHON ?= $(shell for name in python3.12 python3.11 python3.13 python3; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$name; break; }; done)
BIN := .venv/bin
READY := .venv/.ready
# What only tests and checks need is installed by the first of them.
TEST_READY := .venv/.ready-test
# The tests on torch tensors run in an environment of their own, which also sees the packages of .venv/.
TORCH := .venv-torch
TORCH_READY := $(TORCH)/.ready
# The compiler that checks the types of the pages' modules. Nothing that is served needs it.
TSC_READY := .tsc/.ready
SITE := -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
# A machine with a GPU also gets cuBLASLt, the baseline.
GPU := $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu)
# Parallel test processes, for two cores: many tests wait for a service or a time limit. Each file runs in one process,
# because its tests share fixtures.
JOBS ?= 3
# Processes with a browser and a service each: while one waits for its page, the other draws.
BROWSERS ?= 2
ARGS ?=

# Nothing is compiled on installation: each process would compile all that it imports, which takes seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help tune test tests test-torch test-slow test-browser check check-pages test-gpu docs serve demo pictures lock clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

tune: $(READY)  ## Tune 4096x4096x4096 in bf16: on this machine's GPU, or on the recorded H200
	$(BIN)/gemmtune tune 4096x4096x4096 --dtype bf16 $(ARGS)

test: check tests  ## Run lint, type checks, and every test that needs no GPU

tests: $(TEST_READY)
	$(BIN)/python -m pytest -m "not gpu and not slow" -n $(JOBS) --dist loadfile --no-loadscope-reorder --ignore tests/browser $(ARGS)

test-slow: $(TEST_READY)  ## Run the tests that take minutes of processor time
	$(BIN)/python -m pytest -m slow -n $(JOBS) --dist loadfile $(ARGS)

test-browser: $(TEST_READY)  ## Run the tests on the pages, in the machine's chromium
	$(BIN)/python -m pytest tests/browser -n $(BROWSERS) --dist loadfile $(ARGS)

test-torch: $(TORCH_READY)  ## Run the tests on torch tensors, with the CPU build of PyTorch
	$(TORCH)/bin/python -m pytest tests/integration/torch $(ARGS)

check: $(TEST_READY)  ## Run lint and type checks only
	$(BIN)/ruff check .
	$(BIN)/mypy

check-pages: $(TSC_READY)  ## Check the types of the pages' modules, with the TypeScript compiler from npm
	.tsc/node_modules/.bin/tsc --project api/dashboard/jsconfig.json

pictures: $(TEST_READY)  ## Draw the pages' pictures in docs/pictures/ anew, with the machine's chromium
	$(BIN)/python -m benchmarks.dashboard.pictures

test-gpu: $(TEST_READY)  ## Run the tests that need a GPU
	$(BIN)/python -m pytest -m gpu tests/gpu $(ARGS)

docs: $(TEST_READY)  ## Build the documentation into site/
	$(BIN)/python -m docs.site $(ARGS)

serve: $(READY)  ## Serve the store over HTTP
	$(BIN)/gemmtune serve $(ARGS)

demo: $(READY)  ## Watch a recorded campaign in the dashboard as if live; needs no GPU
	$(BIN)/gemmtune serve --demo $(ARGS)

COMPILE = $(BIN)/uv pip compile pyproject.toml --universal --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --python-version 3.11 --quiet

lock: $(READY)  ## Resolve the lock files anew
	$(BIN)/pip install --quiet uv
	$(COMPILE) --extra build --extra test --extra docs --output-file requirements-test.lock
	$(COMPILE) --extra build --constraint requirements-test.lock --output-file requirements.lock
	$(COMPILE) --extra build --extra gpu --constraint requirements-test.lock --output-file requirements-gpu.lock

clean:  ## Remove the environment
	rm -rf .venv $(TORCH) .tsc

# Modules are compiled when they are first imported: most never are.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

$(READY): pyproject.toml requirements.lock requirements-gpu.lock
	@test -n "$(PYTHON)" \
		|| { echo "gemmtune needs Python 3.11 or newer: install it, or say make PYTHON=/path/to/python3.12"; exit 1; }
	@"$(PYTHON)" -m venv .venv \
		|| { echo "the venv module of $(PYTHON) is missing: install it (Debian: python3-venv)"; exit 1; }
	$(INSTALL) --require-hashes --only-binary=:all: -r $(if $(GPU),requirements-gpu.lock,requirements.lock)
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(TSC_READY):
	@npm install --silent --no-audit --no-fund --no-save --prefix .tsc typescript@7.0.2
	@touch $@

$(TEST_READY): $(READY) requirements-test.lock
	$(INSTALL) --require-hashes --only-binary=:all: -r requirements-test.lock
	@touch $@

$(TORCH_READY): $(TEST_READY) requirements-torch.txt
	@$(BIN)/python -m venv $(TORCH)
	@{ $(BIN)/python $(SITE); pwd; } > "$$($(TORCH)/bin/python $(SITE))/gemmtune.pth"
	@$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary=:all: -r requirements-torch.txt \
		|| { echo "the CPU build of PyTorch in requirements-torch.txt is not in pip's index: docs/torch.md says where it is"; exit 1; }
	@touch $@
