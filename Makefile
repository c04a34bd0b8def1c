# Each target sets up what it needs, from a bare checkout with Python 3.11 or newer.

PYTHON ?= python3
ARGS ?=
SEEDS ?= 1000
INPUTS ?= 20000
JUNK ?= 200

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test bench peers trails simulate faults soak mutations fuzz newest-kazoo
.PHONY: check layers architecture build spark-zip clean

help:  ## say what there is
	@echo "make demo     see it: caches on several nodes, invalidated through a real ZooKeeper"
	@echo "make test     run every test, on ZooKeeper embedded and in containers (ARGS='-k name' for some of them)"
	@echo "make bench    how fast it is here, beside the original's algorithm (ARGS='--suite targets')"
	@echo "make peers    the same work on Redis, RabbitMQ, NATS and kazoo's queue; writes benchmarks/results/"
	@echo "make trails   the analysis of trails at scale, beside plain SQL and DuckDB; writes benchmarks/results/"
	@echo "make simulate  the real code in simulated worlds: seeded schedules full of faults (SEEDS=10000)"
	@echo "make soak     half an hour at half of the peak: does anything grow? (ARGS='--scenario storm'); writes verification/soak/results/"
	@echo "make faults   break servers, networks, disks and clocks while messages flow; writes verification/faults/results/"
	@echo "make mutations  switch off each mechanism that a guarantee rests on, and see a test fail for it"
	@echo "make fuzz     bad input of every kind (INPUTS=1000000), guided by coverage where atheris can be installed"
	@echo "make newest-kazoo  try the newest release of kazoo, later ones than we allow included"
	@echo "make check    lint, formatting, types, layers, and what is known against the versions we depend on"
	@echo "make layers   which imports lead up a layer, go in circles, or hide inside a function"
	@echo "make architecture  draw docs/rooms.svg from the sources"
	@echo "make build    wheel and sdist, into dist/"
	@echo "make spark-zip  the analysis for spark-submit, into dist/zkms_spark.zip"
	@echo "make clean    remove what the others made"

demo: $(VENV)/demo.stamp
	$(BIN)/zkms demo --report demo-report.html $(ARGS)

# Three at a time, as most tests wait for something: a session to expire, a node to come back.
test: $(VENV)/dev.stamp
	$(BIN)/pytest --zookeeper=both --numprocesses 3 --dist loadfile $(ARGS)

bench: $(VENV)/bench.stamp
	$(BIN)/zkms bench $(ARGS)

peers: $(VENV)/peers.stamp
	$(BIN)/python -m benchmarks $(ARGS)

trails: $(VENV)/dev.stamp $(VENV)/peers.stamp
	$(BIN)/python -m benchmarks.trails $(ARGS)

simulate: $(VENV)/dev.stamp
	$(BIN)/python -m verification.simulation --seeds $(SEEDS) --jobs 2 $(ARGS)

soak: $(VENV)/bench.stamp
	$(BIN)/python -m verification.soak $(ARGS)

faults: $(VENV)/dev.stamp
	$(BIN)/python -m verification.faults $(ARGS)

mutations: $(VENV)/dev.stamp
	$(BIN)/python -m verification.mutations $(ARGS)

# The junk in a real tree is a test, with more of it than `make test` has.
fuzz: $(VENV)/dev.stamp $(VENV)/fuzz.stamp
	$(BIN)/python -m verification.fuzz --inputs $(INPUTS) $(ARGS)
	ZKMS_FUZZ_JUNK=$(JUNK) $(BIN)/pytest tests/verification/fuzz/test_tree.py --zookeeper=embedded --timeout=3000

newest-kazoo:
	PYTHON=$(PYTHON) .ci/newest_kazoo $(ARGS)

check: $(VENV)/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python .ci/layers.py
	$(BIN)/python .ci/architecture.py --check
	$(BIN)/python .ci/audit.py constraints.txt

layers:
	$(PYTHON) .ci/layers.py

architecture:
	$(PYTHON) .ci/architecture.py

build: $(VENV)/dev.stamp
	rm -rf dist
	$(BIN)/python -m build --no-isolation

spark-zip: $(VENV)/dev.stamp
	$(BIN)/python spark/package.py dist/zkms_spark.zip

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis fuzz-crashes
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is renewed when the requirements change; the editable install follows the sources by itself.
$(VENV)/pip.stamp: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "zkms needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip
	@touch $@

$(VENV)/demo.stamp: $(VENV)/pip.stamp pyproject.toml
	$(INSTALL) --build-constraint constraints.txt --editable '.[server,cleaner,spark]'
	@touch $@

$(VENV)/bench.stamp: $(VENV)/pip.stamp pyproject.toml
	$(INSTALL) --build-constraint constraints.txt --editable '.[server,cleaner,bench]'
	@touch $@

$(VENV)/peers.stamp: $(VENV)/bench.stamp
	$(INSTALL) --group peers
	@touch $@

# It has no wheels for every Python: without it, inputs are mutated without a guide.
$(VENV)/fuzz.stamp: $(VENV)/pip.stamp pyproject.toml
	$(INSTALL) --only-binary :all: --group fuzz || echo "atheris cannot be installed here: fuzzing without coverage"
	@touch $@

$(VENV)/dev.stamp: $(VENV)/pip.stamp pyproject.toml
	$(INSTALL) --build-constraint constraints.txt --editable '.[all]' --group dev
	@touch $@
