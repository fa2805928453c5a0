# Every task of this house has one name here. `make` alone lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
LOG := $(VENV)/install.log
PRODUCT := events planner controlplane worker_shim
CODE := $(PRODUCT) tests $(wildcard benchmarks examples ops)
TYPED_USES := tests/typing/uses.py $(wildcard examples/*.py)
PYRIGHT := $(VENV)/.pyright-passed

# PYTHON chooses the interpreter of a new .venv; ARGS goes to the command (`make demo ARGS=--help`).
PYTHON ?=
ARGS ?=
BENCH ?=
SEEDS ?= 100

.PHONY: help demo test sim check format bench mutants venv clean distclean

help:
	@echo 'make demo     train a real model through crashes and a hang, recover, prove it (ARGS=...)'
	@echo 'make test     the checks and the simulator below, then all tests (ARGS=... goes to pytest)'
	@echo 'make sim      the control plane through random faults on virtual time (SEEDS=100)'
	@echo 'make check    lint, format, types, who imports whom'
	@echo 'make format   let ruff format and fix what it can'
	@echo 'make bench    run benchmarks/*.py, or one: BENCH=recovery (ARGS=...)'
	@echo 'make mutants  change the core in one place at a time; does a test notice? (ARGS=--help)'
	@echo 'make venv     set up .venv (the others do it when it is missing or out of date)'
	@echo 'make clean    remove caches and build output; make distclean also removes .venv'

demo: $(STAMP)
	@exec $(VENV)/bin/unicron demo $(ARGS)

test: check sim
	@exec $(PY) -m pytest $(ARGS)

sim: $(STAMP)
	@$(VENV)/bin/unicron sim --seeds $(SEEDS)

check: $(STAMP)
	@echo 'check: ruff' && $(PY) -m ruff check --quiet --output-format concise $(CODE)
	@echo 'check: format' && $(PY) -m ruff format --quiet --check $(CODE)
	@echo 'check: mypy' && $(PY) -m mypy --no-error-summary
	@$(PY) -m mypy --no-error-summary $(TYPED_USES)
	@$(MAKE) $(PYRIGHT)
	@echo 'check: imports' && out=$$($(VENV)/bin/lint-imports 2>&1) || { echo "$$out"; exit 1; }

# It keeps no cache of its own and takes half a minute, so it runs when something has changed.
$(PYRIGHT): pyproject.toml $(shell find $(PRODUCT) -name '*.py') $(TYPED_USES)
	@echo 'check: pyright' && out=$$($(PY) -m pyright 2>&1) || { echo "$$out"; exit 1; }
	@touch $@

format: $(STAMP)
	@$(PY) -m ruff check --quiet --fix-only $(CODE) && $(PY) -m ruff format --quiet $(CODE)

bench: $(STAMP)
	@found=; for f in benchmarks/$(or $(BENCH),*).py; do \
	  [ -e "$$f" ] || continue; found=1; echo "bench: $$f"; $(PY) "$$f" $(ARGS); \
	done; \
	[ -n "$$found" ] || { echo 'error: no such benchmark: benchmarks/$(or $(BENCH),*).py' >&2; exit 2; }

mutants: $(STAMP)
	@exec $(PY) -m tests.mutation $(ARGS)

venv: $(STAMP)
	@:

# The stamp is written last, so an interrupted set-up is simply done again.
$(STAMP): pyproject.toml constraints.txt
	@if ! $(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  found=; for p in $(or $(PYTHON),python3.11 python3 python3.12 python3.13); do \
	    "$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	      2>/dev/null && { found=$$p; break; }; \
	  done; \
	  if [ -z "$$found" ]; then \
	    { echo 'error: no usable Python: 3.11 or newer with the venv and ensurepip modules is needed'; \
	      echo '       found: $(or $(PYTHON),python3)' "$$($(or $(PYTHON),python3) -V 2>&1 | head -1)"; \
	      echo 'try:   install it (Debian and Ubuntu: python3.11 and python3.11-venv), or name one:'; \
	      echo '       make PYTHON=/path/to/python3.11 venv'; } >&2; exit 1; \
	  fi; \
	  echo "set-up: new $(VENV) with $$found ($$($$found -V))"; \
	  rm -rf $(VENV); "$$found" -m venv $(VENV); \
	fi
	@echo 'set-up: installing (the first time some minutes, torch is large)'
	@$(PY) -m pip install --disable-pip-version-check --no-input -c constraints.txt -e '.[dev]' 2>&1 \
	  | tee $(LOG) | sed -un \
	    -e 's/^ *Downloading \([^-]*-[^-]*\)-[^ ]* (\([0-9]\{2,\}\.[0-9] MB\|.* GB\))/  getting \1 (\2)/p' \
	    -e 's/^Installing collected packages: .*/  installing packages/p' \
	  || { { grep -E '^ *(ERROR|error)' $(LOG) || tail -n 15 $(LOG); } >&2; \
	       echo 'error: set-up failed; all of it is in $(LOG)' >&2; \
	       echo 'try:   make venv again once the cause is gone (network? a Python without wheels?)' >&2; \
	       exit 1; }
	@touch $(STAMP); echo 'set-up: done'

clean:
	@rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean
	@rm -rf $(VENV)
