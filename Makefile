# Six targets; CI calls the same ones.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test check docs bench install clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP)  ## make the environment .venv (about 6 GB with PyPI's torch)

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if (3, 11) <= v < (3, 13) else "Sightflow needs Python 3.11 or 3.12, this is %d.%d: make PYTHON=python3.11 ..." % v[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test,dev]'
	touch $(STAMP)

demo: $(STAMP)  ## the main job on the embedded default: draw, train, evaluate, register
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m steps.doctor --init true
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/mlflow run . --env-manager local --experiment-name detection

test: $(STAMP)  ## all tests
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -q

check: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)  ## write the generated pages docs/configs.md and docs/experiment.schema.json
	$(BIN)/python -m steps.schema_docs

bench: $(STAMP)  ## side-by-side measurements, as ratios
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m benchmarks

clean:  ## remove working files, not the tracking store
	rm -rf .sightflow build *.egg-info
