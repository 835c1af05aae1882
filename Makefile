# The front door. Each target sets up what it needs; `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ROOMS  := generators recipes hub_cards eval_tasks stats cli tests setup.py
export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: help install quickstart test test-slow lint bench hub clean

help:           ## this list
	@sed -n 's/^\([a-z-]*\): .*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

install: $(VENV)/installed   ## .venv with everything, from constraints.txt

$(VENV)/installed: pyproject.toml setup.py constraints.txt $(wildcard eval_tasks/*harness/*)
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info[:2] <= (3, 13); sys.exit(0 if ok else "stsr needs Python 3.11, 3.12 or 3.13; say which with: make PYTHON=python3.12")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing into $(VENV); this takes a few minutes the first time."
	@$(BIN)/python -m pip install --quiet -c constraints.txt torch
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[all]"
	@touch $@

quickstart: install   ## build, publish, train, evaluate and report, on this machine
	$(BIN)/stsr run quickstart

test: install   ## the quick tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not needs_java"

test-slow: install   ## the tests that take minutes, and those that start the ScienceWorld simulator
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "slow or needs_java"

lint: install   ## style and types
	$(BIN)/ruff check $(ROOMS)
	$(BIN)/ruff format --check $(ROOMS)
	@mkdir -p build/types && ln -sfn ../.. build/types/stsr
	MYPYPATH=build/types $(BIN)/mypy -p stsr.generators -p stsr.recipes -p stsr.hub_cards -p stsr.eval_tasks -p stsr.stats -p stsr.cli

bench: install .venv-peers .venv-inspect   ## speed and memory, as figures, beside reasoning-gym's and inspect_ai's
	$(BIN)/stsr bench

.venv-peers:
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet reasoning-gym==0.1.25

.venv-inspect:
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet inspect_ai==0.3.285 $$(grep -E '^(accelerate|torch|transformers)==' constraints.txt)

hub: install   ## the loopback Hub of the quickstart
	$(BIN)/stsr hub serve

clean:          ## remove what was built, trained and reported (keeps .venv)
	rm -rf out build dist *.egg-info
