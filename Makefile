# `make test` and `make demo` set up everything they need: Python 3.10-3.13, git and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
# Two at a time: most tests compile on one core, and those that build on all are few.
TEST_JOBS ?= 2
DEMO_BUDGET ?= 2m

.PHONY: setup test demo docs lint types release-check clean

setup: $(VENV)/.installed

# Remade when the dependencies change. The extra `dev` holds what the tests, the demo and the checks import.
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

test: setup
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile $(PYTEST_ARGS)

demo: setup
	$(BIN)/python -m benchmarks.demo --budget $(DEMO_BUDGET)

# The site, in build/site; it loads nothing from elsewhere.
docs: setup
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

# Wheel and sdist in clean environments: every Python that is found, oldest and newest dependencies, NumPy alone.
release-check:
	$(PYTHON) .ci/release_check.py $(RELEASE_ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
