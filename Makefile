# Every target works on a fresh machine: it makes .venv from the lock first. Java: see spark_jobs/java.py.
# Tests and benchmarks start hundreds of processes, each of which would compile all modules once more.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
PAIMON := .venv-paimon
SPARK_READERS := .venv-spark-readers
HELM := .venv-helm
ENGINES := .venv-engines
AUDIT := .venv-audit
HOST ?= 127.0.0.1
PORT ?= 8080
DATA ?= keyfold-data
SEED ?= 1
FUZZ_SECONDS ?= 60
SECONDS ?= 3600
CHANGES ?= 100000
MODE ?= list
SOURCE ?= postgres
MINUTES ?= 10
CATALOG ?= sqlite

.PHONY: serve test quick check audit sbom check-mutants flips fuzz soak debezium engines bench bench-merge bench-amplification bench-serve bench-ingest bench-peers lock client openapi reference docs screenshots chart

# Python compiles what it imports, not what it never does.
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
PIP := $(BIN)/python $(INSTALL)

# What serving needs, and nothing else.
$(VENV)/.serving: requirements-serve.lock pyproject.toml
	@echo "Installing what serving needs into $(VENV): $$(grep -c == requirements-serve.lock) packages, 1.1 GB with Spark and a JRE"
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r requirements-serve.lock
	$(PIP) --no-deps --editable .
	touch $@

$(VENV)/.installed: $(VENV)/.serving requirements.lock
	@echo "Installing what tests and checks need into $(VENV): $$(grep -c == requirements.lock) packages, 2.4 GB in all"
	$(PIP) -r requirements.lock
	touch $@

serve: $(VENV)/.serving
	$(BIN)/keyfold serve --host $(HOST) --port $(PORT) --data $(DATA)

# Where the tests write: in memory, if 4 GiB are free there, so that thousands of fsyncs wait for no disk.
MEMORY := $(shell [ -w /dev/shm ] && [ "$$(df -Pk /dev/shm | awk 'NR==2 {print $$4}')" -gt 4194304 ] && echo /dev/shm)
IN_MEMORY := $(if $(MEMORY),TMPDIR=$(MEMORY))

# Two processes, a file at a time, on one Spark and one PostgreSQL server; the order is that of tests/conftest.py.
test: $(VENV)/.installed
	$(IN_MEMORY) $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# What needs neither Spark nor PostgreSQL and is not slow, by the marks in pyproject.toml and what tests/slow.txt saw.
quick: $(VENV)/.installed
	$(IN_MEMORY) HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -n 2 --dist worksteal --ignore tests/spark_jobs --ignore tests/acceptance -m "not spark and not postgres and not slow" $(QUICK_OPTIONS)

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.language
	$(BIN)/python -m tests.code_language

# Whether a locked package has a known vulnerability. It asks PyPI.
audit: $(AUDIT)/.installed
	$(AUDIT)/bin/pip-audit --requirement requirements-serve.lock --no-deps --disable-pip

# What an installation consists of, in CycloneDX, as the image has it in /opt/keyfold/sbom.cdx.json.
sbom: $(VENV)/.serving $(AUDIT)/.installed
	$(AUDIT)/bin/cyclonedx-py environment $(BIN)/python --output-file sbom.cdx.json

$(AUDIT)/.installed:
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python $(INSTALL) pip-audit==2.10.1 cyclonedx-bom==7.5.0
	touch $@

# A sample of single entries removed or swapped: does a test notice? Minutes; see docs/mutants.md.
check-mutants: $(VENV)/.installed
	$(BIN)/python -m lab.mutants

# Files damaged by seed, every answer compared: none is wrong, each damage is named. Minutes.
flips: $(VENV)/.installed
	$(IN_MEMORY) $(BIN)/python -m lab.faults.flips --n 3000 --seed $(SEED)

# Each decoder on new inputs, led by the code that they reach, for FUZZ_SECONDS; see lab/fuzz. Linux, half an hour.
fuzz: $(VENV)/.fuzz
	$(IN_MEMORY) $(BIN)/python -m lab.fuzz --seconds $(FUZZ_SECONDS)

$(VENV)/.fuzz: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	touch $@

# Real processes killed, frozen, robbed of their disk, files and time by seed, every row compared after each fault: an
# hour (SECONDS=), on SQLite or PostgreSQL (CATALOG=postgres). As root it also takes disks away, with cc it sets clocks.
soak: $(VENV)/.installed
	$(IN_MEMORY) $(BIN)/python -m lab.faults.soak --seconds $(SECONDS) --seed $(SEED) --catalog $(CATALOG)

# A real database (SOURCE=postgres, or mariadb if it is installed), a real Debezium (Maven fetches it, a JDK runs it) and
# the service, each killed; then every row is compared. MODE=single posts event by event.
debezium: $(VENV)/.installed
	$(IN_MEMORY) $(BIN)/python -m lab.debezium --changes $(CHANGES) --seed $(SEED) --source $(SOURCE) --mode $(MODE)

# Daft, ClickHouse and a real Trino (Maven fetches 0.8 GB, TRINO_JAVA_HOME or JAVA_HOME is a Java of 24 or later) read
# published tables, and every row is compared with the lookups. Three minutes.
engines: $(VENV)/.installed
	$(IN_MEMORY) $(BIN)/python -m lab.engines

$(ENGINES)/.installed: lab/engines/requirements.txt
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python $(INSTALL) -r $<
	touch $@

# The documents as a site, in site/: read it from the disk, it asks nobody for anything. Any dead link fails.
docs: $(VENV)/.installed
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.installed
	$(BIN)/python -m bench startup

bench-merge: $(VENV)/.installed
	$(BIN)/python -m bench merge

bench-amplification: $(VENV)/.installed
	$(BIN)/python -m bench amplification

# Lookups over HTTP, also beside Redis (apt-get install redis-server) and PostgreSQL; then images and scans.
bench-serve: $(VENV)/.installed $(PEERS)/.installed
	$(BIN)/python -m bench serve

# Ingest by format, also beside FastAPI with PostgreSQL, pypaimon and delta-rs.
bench-ingest: $(VENV)/.installed $(PEERS)/.installed
	$(BIN)/python -m bench ingest

bench-peers: $(VENV)/.installed $(PEERS)/.installed $(SPARK_READERS)/.installed
	$(BIN)/python -m bench.peers --python $(PEERS)/bin/python --spark-python $(SPARK_READERS)/bin/python

$(PEERS)/.installed: bench/requirements-peers.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python $(INSTALL) -r bench/requirements-peers.txt
	touch $@

# Paimon's client for tests/acceptance/test_pypaimon.py, which asks for it by itself.
$(PAIMON)/.installed: tests/acceptance/paimon_client/requirements.txt
	$(PYTHON) -m venv $(PAIMON)
	$(PAIMON)/bin/python $(INSTALL) -r $<
	touch $@

# Spark for Delta's and Iceberg's packages: for tests/acceptance/test_spark_readers.py, which asks for it by itself, and
# for bench-peers.
$(SPARK_READERS)/.installed: tests/acceptance/spark_readers/requirements.txt
	$(PYTHON) -m venv $(SPARK_READERS)
	$(SPARK_READERS)/bin/python $(INSTALL) -r $<
	touch $@

# The Helm chart as Helm renders it, checked by the schemas of Kubernetes' objects; Go builds Helm. The tests read what
# it writes, and fail if the chart changed since.
chart: $(VENV)/.installed $(HELM)/bin/helm
	$(BIN)/python -m lab.chart --helm $(HELM)/bin/helm --validate $(HELM)/bin/kubernetes-validate

$(HELM)/.installed:
	$(PYTHON) -m venv $(HELM)
	$(HELM)/bin/python $(INSTALL) kubernetes-validate==1.37.0
	touch $@

$(HELM)/bin/helm: $(HELM)/.installed
	GOBIN=$(abspath $(HELM)/bin) go install helm.sh/helm/v3/cmd/helm@v3.22.0

# The Python client without asyncio, of the one with it; a test compares what is committed.
client: $(VENV)/.installed
	$(BIN)/python clients/python/make_sync.py

# The OpenAPI document as it is committed; a test says in words where it differs from the one that is served.
openapi: $(VENV)/.installed
	$(BIN)/python -m tests.api.openapi

# The pages of docs/reference, of the tables that the program has; a test fails where they differ.
reference: $(VENV)/.installed
	$(BIN)/python -m tests.reference

# The pictures of docs/console.md, of a real service with Spark that was used for MINUTES; needs Chromium.
screenshots: $(VENV)/.installed
	$(IN_MEMORY) $(BIN)/python -m tests.console.screenshots --minutes $(MINUTES)

# Needs uv; run it after a change of the dependencies in pyproject.toml.
LOCKED := --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --no-emit-find-links
lock:
	uv pip compile pyproject.toml --extra dev $(LOCKED) --output-file requirements.lock
	uv pip compile pyproject.toml --extra spark $(LOCKED) --constraint requirements.lock --output-file requirements-serve.lock
