# `make run` and `make test` set up everything they need in .venv; Python 3.11 or newer is all that must be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What running needs, and what testing needs beyond that.
RUNNABLE := $(VENV)/.runnable
READY := $(VENV)/.ready

.PHONY: run test test-slow test-agents check bench clean

$(RUNNABLE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed") if sys.version_info < (3, 11) else None'
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(READY): $(RUNNABLE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

run: $(RUNNABLE) ## read this machine's agents (or a small sample when there are none) and answer a search
	@$(BIN)/python -m backstory.faces.cli.demo

test: check ## everything that is fast, and short forms of the slow tests
	$(BIN)/python -m pytest -n 2

test-slow: $(READY) ## load, crash and scale
	$(BIN)/python -m pytest -m slow

.agents/.ready: tests/agents/package.json
	mkdir -p .agents
	cp tests/agents/package.json .agents/
	npm install --prefix .agents --no-audit --no-fund --silent
	touch $@

test-agents: $(READY) .agents/.ready ## clients of other people, from npm; needs node and, the first time, the network
	$(BIN)/python -m pytest -m agents

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY) ## the numbers of docs/performance.md; EVENTS=1000000 for the full size
	$(BIN)/python -m pip install --quiet --constraint constraints.txt '.[bench]'
	$(BIN)/python -m bench.run --events $(or $(EVENTS),100000)

clean:
	rm -rf $(VENV) .agents .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
