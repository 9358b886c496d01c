# Every target sets up what it needs; `make setup` is done again only when pyproject.toml changes.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
BASE := $(VENV)/.base

.PHONY: setup system run test test-more test-install test-failures test-security test-lowest truth fuzz mutants check format bench bench-all clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade-strategy only-if-needed --editable '.[bench,dev]'
	touch $(BASE) $@

$(BASE): pyproject.toml
	@echo "Installing dray and what it needs into $(VENV), once: about a minute"
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	touch $@

system:  ## what tests need of the system: several hosts, SSH, PostgreSQL, Java; without them they are skipped
	@missing=""; \
	command -v ip >/dev/null && command -v tc >/dev/null || missing="$$missing iproute2"; \
	command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$$missing postgresql"; \
	command -v sshd >/dev/null || [ -x /usr/sbin/sshd ] || missing="$$missing openssh-server"; \
	command -v java >/dev/null || missing="$$missing default-jre-headless"; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" != 0 ]; then echo "make system:$$missing: missing, and only root can install it"; \
	elif ! command -v apt-get >/dev/null; then echo "make system:$$missing: missing, and there is no apt-get to install it"; \
	else export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -qq && apt-get install -qq --yes --no-install-recommends $$missing; \
	fi

run: $(BASE)  ## from a small CSV file to a model, what matters in it, the same on 2 local Ray workers, predictions
	@PATH="$(CURDIR)/$(BIN):$$PATH" examples/first_run/run.sh

test: $(STAMP)
	$(BIN)/pytest -q -n 2 --dist loadfile tests/unit
	$(BIN)/pytest -q -n 2 tests/truth
	$(BIN)/pytest -q tests/cluster

test-more: $(STAMP)  ## the guides, rows in bulk, jobs, Ray on a real Spark, several machines with SSH
	$(BIN)/pytest -q -n 2 --dist loadfile tests/guides tests/bulk tests/clusters
	$(BIN)/pytest -q tests/hosts

test-install: $(STAMP)  ## a wheel and a source archive, installed by every Python from 3.11 to 3.13 that is here
	$(BIN)/pytest -q tests/install

test-failures: $(STAMP)  ## workers, drivers and disks that fail for real, and 10 random runs
	$(BIN)/pytest -q tests/chaos

truth: $(STAMP)  ## 5,000 random cases against plain XGBoost: about 20 minutes; SEED=7 repeats those of that seed
	@seed=$${SEED:-$$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}; echo "make truth SEED=$$seed"; \
	DRAY_TRUTH_CASES=5000 DRAY_TRUTH_SEED=$$seed $(BIN)/pytest -q -n 2 tests/truth

test-security: $(STAMP)  ## changed bytes for every reader, 2,000 each, the same ones every time
	$(BIN)/pytest -q -n 2 --dist loadgroup tests/security

fuzz: $(STAMP)  ## the same with 200,000 each: hours; SEED=7 repeats those of that seed, ARGS="-k marks" has one reader
	@seed=$${SEED:-$$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}; echo "make fuzz SEED=$$seed"; \
	DRAY_FUZZ_CASES=200000 DRAY_FUZZ_SEED=$$seed $(BIN)/pytest -q -n 2 tests/security/test_fuzz.py $(ARGS)

test-lowest:  ## the unit tests with the lowest versions that pyproject.toml allows: about 15 minutes
	python3 -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct \
		--editable '.[test,databricks]'
	.venv-lowest/bin/pytest -q -n 2 --dist loadfile tests/unit

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

bench-recovery: $(STAMP)  ## what a killed worker costs, in dray and in the alternatives: about 25 minutes
	$(BIN)/python benchmarks/recovery.py $(ARGS)

soak: $(STAMP)  ## 200 random runs with random failures: about an hour; ARGS="--runs 10" for a few
	$(BIN)/python benchmarks/soak.py $(ARGS)

mutants: $(STAMP)  ## small changes at random places: do the nearest tests notice? ARGS="--sample 60 --seed 1"
	$(BIN)/python benchmarks/mutants.py $(ARGS)

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .pytest_cache
