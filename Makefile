# Every target sets up what it needs; `make setup` is done again only when pyproject.toml changes.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: setup run test check format bench bench-all clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade-strategy only-if-needed --editable '.[bench,dev]'
	touch $@

run: $(STAMP)  ## make a small data set, train on it with 2 local Ray workers, predict
	PATH="$(CURDIR)/$(BIN):$$PATH" examples/first_run.sh

test: $(STAMP)
	$(BIN)/pytest -q tests/unit
	$(BIN)/pytest -q tests/cluster

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## dray beside the alternatives: about 12 minutes on 2 idle cores
	$(BIN)/python benchmarks/training.py $(ARGS)

bench-all: $(STAMP)  ## the same, and prediction, start-up and scaling: about half an hour
	$(BIN)/python benchmarks $(ARGS)

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .pytest_cache
