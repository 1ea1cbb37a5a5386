# Everything goes into .venv inside the project; nothing outside it is touched.

PYTHON ?= python3
TORCH  ?= torch==2.13.0
ARGS   ?=

VENV  := .venv
BIN   := $(VENV)/bin
# -P keeps this folder off sys.path. Tools run as modules: one that the interpreter already had has no script in .venv.
RUN   := $(BIN)/python -P -m
STAMP := $(VENV)/.installed
TYPES := build/types/contraflow
PIP   := $(RUN) pip install -qq --disable-pip-version-check

# Reads metadata only: importing torch to ask its version would take seconds.
HAS_TORCH := -c 'from importlib.metadata import version as v; exit(tuple(map(int, v("torch").split(".")[:2])) < (2, 11))' 2>/dev/null

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check bench study searched types clean

help:  ## this list
	@echo "make TARGET, one of:"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST)
	@echo "The first one installs into $(VENV) (PYTHON=$(PYTHON), $(TORCH) where $(PYTHON) has no torch);"
	@echo "afterwards the command is $(BIN)/contraflow. ARGS=... is handed on to demo, test and bench."

demo: $(STAMP)  ## design a schedule, look at it, run it, compare
	@$(BIN)/python examples/demo.py $(ARGS)

test: $(STAMP)  ## every test
	@echo "tests"
	@$(RUN) pytest $(ARGS)

check: $(STAMP) types  ## lint, formatting, types
	@echo "ruff: lint"
	@$(RUN) ruff check --quiet .
	@echo "ruff: formatting"
	@$(RUN) ruff format --quiet --check .
	@echo "mypy: types"
	@$(RUN) mypy

bench: $(STAMP)  ## how fast the designer and the engine are on this machine
	@$(BIN)/python examples/bench $(ARGS)

study: $(STAMP)  ## the pages of examples/study: schedules on one model, against their bounds, against measurements
	@$(BIN)/python examples/study

searched: $(STAMP)  ## search on from the programs in examples/study/searched: two minutes for each
	@$(BIN)/python examples/study/searched.py

types:  ## build/types: links that lay the folders out as the contraflow package, for mypy or PYTHONPATH
	@mkdir -p $(TYPES)
	@for folder in designer engine kernels; do ln -sfn ../../../$$folder $(TYPES)/$$folder; done

clean:  ## remove all that make and the tools made, .venv included
	@echo "removing $(VENV), build and caches"
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find designer engine kernels examples tests -name __pycache__ -prune -exec rm -rf {} +

# An interpreter that has a torch was given the right one for its machine: use that one.
$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Contraflow needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@if $(PYTHON) $(HAS_TORCH); then \
	    echo "making $(VENV) on top of the packages of $(PYTHON), which has torch"; \
	    $(PYTHON) -m venv --system-site-packages $(VENV); \
	else \
	    echo "making $(VENV)"; \
	    $(PYTHON) -m venv $(VENV); \
	fi

# torch goes in first and by itself: as a mere dependency pip would take the newest release of it.
$(STAMP): pyproject.toml | $(VENV)/pyvenv.cfg
	@$(BIN)/python $(HAS_TORCH) || { echo "installing $(TORCH) (this takes a while)"; $(PIP) "$(TORCH)"; }
	@echo "installing contraflow"
	@$(PIP) --editable ".[dev]"
	@touch $@
