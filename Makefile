# Two commands set up everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH_VENV := .bench-venv
# pip's own progress and notices would drown the output that matters.
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# Tests and examples are small, and run beside each other: BLAS threads would only wait for one another.
test coverage examples: export OMP_NUM_THREADS = 1

.PHONY: help demo test check lint types contracts docstrings coverage examples bench bench-quick docs test-oldest clean

help:  ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "manylens needs Python 3.11 or newer: run 'make PYTHON=python3.12 ...'"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --editable ".[cli,plot,save,test]"
	@touch $@

$(VENV)/ready-dev: $(VENV)/ready
	$(PIP) install ruff==0.17.4 mypy==2.4.1 import-linter==2.16 numpydoc==1.11.0
	@touch $@

demo: $(VENV)/ready  ## Learn lenses of the digits, compare them, write manylens-report.html
	$(BIN)/manylens demo

test: $(VENV)/ready  ## Run the tests
	$(BIN)/python -m pytest -n auto -q

check: lint types contracts docstrings coverage examples bench-quick  ## All that CI asks for

lint: $(VENV)/ready-dev  ## Style (ruff)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/ready-dev  ## Types (mypy)
	$(BIN)/mypy

contracts: $(VENV)/ready-dev  ## Which room may import which (import-linter)
	$(BIN)/lint-imports

docstrings: $(VENV)/ready-dev  ## Docstrings of everything public (numpydoc)
	$(BIN)/python docs/check_docstrings.py

coverage: $(VENV)/ready-dev  ## Tests with coverage
	$(BIN)/python -m pytest -n auto -q --cov --cov-report=term --cov-fail-under=90

examples: $(VENV)/ready  ## Run every example; figures go to examples/figures
	$(BIN)/python examples/run_all.py

# Peers have an environment of their own: what they ask for is nothing to the library or its tests.
$(BENCH_VENV)/ready: pyproject.toml benchmarks/requirements.txt benchmarks/requirements-no-deps.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip --quiet --disable-pip-version-check install --editable ".[plot,save]" \
		--requirement benchmarks/requirements.txt
	$(BENCH_VENV)/bin/python -m pip --quiet --disable-pip-version-check install --no-deps \
		--requirement benchmarks/requirements-no-deps.txt
	@touch $@

bench: $(BENCH_VENV)/ready  ## Every paper's table and every peer (an hour); rewrites benchmarks/records, RESULTS.md
	$(BENCH_VENV)/bin/python -m benchmarks run
	$(BENCH_VENV)/bin/python -m benchmarks report

bench-quick: $(VENV)/ready  ## Every benchmark at a size of seconds, so that none rots
	$(BIN)/python -m benchmarks run --quick

docs: $(VENV)/ready  ## Build the site in docs/_build
	$(PIP) install --editable ".[docs]"
	$(BIN)/python docs/write_api.py
	$(BIN)/python -m benchmarks report --site
	$(BIN)/python -m sphinx -q -b html docs docs/_build

test-oldest:  ## Run the tests with the oldest releases that pyproject.toml claims
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip --quiet install --editable ".[cli,plot,save,test]" \
		numpy==1.26.4 scipy==1.12.0 scikit-learn==1.6.0 numba==0.60.0 pandas==2.2.3
	$(VENV)-oldest/bin/python -m pytest -n auto -q

clean:  ## Remove everything that was made
	rm -rf $(VENV) $(VENV)-oldest $(BENCH_VENV) docs/_build docs/benchmarks.md docs/benchmark_figures
	rm -rf examples/figures benchmarks/figures .pytest_cache .mypy_cache .ruff_cache
