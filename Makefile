# `make run` and `make test` set up everything they need in .venv; Python 3.11 or newer is the only requirement.
PYTHON ?= python3
# Processes that run tests side by side: one more than the cores of a small machine, as tests often wait.
JOBS ?= 3
# Tests are compiled once, not by each process at each run.
export PYTHONDONTWRITEBYTECODE :=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt
# Stamps: installed for running, for testing, for the docs.
RUNNABLE := $(VENV)/.runnable
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready

.PHONY: help setup run test fast-tests test-slow test-agents test-clickhouse check docs screenshots eval bench growth clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

$(RUNNABLE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed") if sys.version_info < (3, 11) else None'
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --editable .
	@touch $@

$(READY): $(RUNNABLE)
	@echo "Installing what the tests need ..."
	@$(PIP) --quiet --editable '.[dev]'
	@touch $@

$(DOCS_READY): $(RUNNABLE)
	@echo "Installing what the docs need ..."
	@$(PIP) --quiet --editable '.[docs]'
	@touch $@

setup: $(READY) ## install everything for development into .venv

run: $(RUNNABLE) ## read this machine's agents (or a small sample when there are none) and answer a search
	@$(BIN)/python -m backstory.faces.cli.demo

check: $(READY) ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Side by side: mypy without its cache takes half a minute of one core.
test: $(READY) ## check, and all fast tests
	$(MAKE) --no-print-directory --jobs 2 check fast-tests

fast-tests: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-slow: $(READY) ## load, crash and scale tests, and all property tests with many examples
	$(BIN)/python -m pytest -m slow
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m hypothesis --hypothesis-profile thorough

.agents/.ready: tests/agents/package.json
	mkdir -p .agents
	cp tests/agents/package.json .agents/
	npm install --prefix .agents --no-audit --no-fund --silent
	touch $@

test-agents: $(READY) .agents/.ready ## the newest agents and MCP clients from npm and PyPI, run offline
	$(BIN)/python -m tests.agents.install --update
	$(BIN)/python -m pytest -m agents -rs

test-clickhouse: $(READY) ## the tests of the archive and of teams on ClickHouse; installs chDB, which is large
	$(PIP) --quiet --editable '.[dev,clickhouse-test]'
	$(BIN)/python -m pytest -m clickhouse tests/archive tests/contract tests/team

docs: $(DOCS_READY) ## the documentation as a site in build/site; fails on a broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open build/site/index.html"

eval: $(READY) ## relevance of search on the transcripts of a home: HOME_DIR=...
	$(BIN)/python -m bench.relevance --ablate $(if $(HOME_DIR),--agents-home $(HOME_DIR))

screenshots: $(READY) ## pictures of the web pages in docs/images; needs chromium
	$(BIN)/python -m tests.faces.web.screenshots

bench: $(READY) ## the numbers of docs/performance.md; EVENTS=1000000 for the full size
	$(PIP) --quiet --editable '.[bench]'
	$(BIN)/python -m bench.run --events $(or $(EVENTS),100000)
	$(BIN)/python -m bench.growth --sizes $(or $(SIZES),10000 100000)

growth: $(READY) ## how the numbers grow with the archive: the plot and the table of docs/performance.md
	$(PIP) --quiet --editable '.[bench]'
	$(BIN)/python -m bench.growth --sizes $(or $(SIZES),10000 100000 1000000) --svg docs/images/growth.svg --page docs/performance.md

clean: ## remove everything that make has made
	rm -rf $(VENV) .agents .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
