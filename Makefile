# kernelweave: the commands of daily work. `make` alone lists them.
# Everything runs in a virtual environment inside this folder, made at first use; nothing else on the machine is touched.

PYTHON ?= python3
VENV   ?= .venv
PYTEST_ARGS ?=

BIN := $(VENV)/bin

# Two test workers share the cores, so each keeps to one thread; what runs in parallel is then tested once more with two.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench docs clean

help: ## list the commands
	@echo "kernelweave: multiple kernel learning, from a folder of pictures to ranked tags"
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "Needs Python 3.11 or newer; choose one with PYTHON=python3.12. The environment is made in $(VENV)."

demo: $(VENV)/.installed ## the whole way: pictures are drawn, learned from, tagged; a report for the browser
	$(BIN)/kernelweave demo --output demo-output

test: lint ## ruff, mypy, tests and the examples in docstrings
	$(ONE_THREAD) $(BIN)/pytest -n 2 $(PYTEST_ARGS)
	NUMBA_NUM_THREADS=2 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -q tests/kernels/test_triangle.py tests/machines/test_svm.py

lint: $(VENV)/.installed-dev ## only ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-dev ## speed and memory beside other libraries, as ratios
	@for script in $$(grep -l __main__ benchmarks/*.py); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

docs: $(VENV)/.installed-docs ## build the documentation and run the gallery; open docs/_build/html/index.html
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean: ## remove what the commands above made, except the environment
	rm -rf build dist demo-output docs/_build docs/auto_examples docs/generated docs/sg_execution_times.rst
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests benchmarks examples docs -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp file for each extra of pyproject.toml: installing again only when what is asked for has changed.
# requirements-dev.txt holds exact versions and serves as constraints, so each target installs no more than it needs.
$(VENV)/.installed-%: pyproject.toml requirements-dev.txt | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements-dev.txt -e ".[$*]"
	@touch $@

$(VENV)/.installed: pyproject.toml requirements-dev.txt | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements-dev.txt -e .
	@touch $@

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "kernelweave needs Python 3.11 or newer, but '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)"; \
	  echo "Name another one, for example: make $(MAKECMDGOALS) PYTHON=python3.12"; \
	  exit 1; }
	@echo "Making a virtual environment in $(VENV) and installing into it (once; a few minutes) ..."
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "Could not make a virtual environment. On Debian and Ubuntu: sudo apt install python3-venv"; \
	  exit 1; }
	@touch $@
