# Every target makes what it needs first: a virtual environment, the dependencies, a Redis.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := $(VENV)/.demo
DOCS := $(VENV)/.docs
comma := ,
# Built without network; a warning, such as a link that leads nowhere, is an error.
SITE := NO_MKDOCS_2_WARNING=1 PYTHONPATH=.:api:monitor $(BIN)/python -m mkdocs
# The demo sends half of its files from a Spark job, where there is a Java to run it.
SPARK := $(if $(shell command -v java 2>/dev/null),$(comma)spark)

# Compiled modules are kept: a process that compiles reliq takes twice as long to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup check check-code check-types check-site fix test test-heavy test-campaign test-full combine test-slices test-all coverage test-slow simulate test-docs test-install test-lowest test-spark-matrix test-celery test-sqs faults faults-mutants mutants demo bench bench-full docs pictures recording screenshots clean
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-18s %s\n", $$1, $$2}'

setup: $(READY) ## Make the virtual environment

$(READY): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(READY)

# Three targets, as .ci/run makes them beside each other.
check: check-code check-types check-site ## Lint, types, layers, that what is generated is up to date, and the documentation site

check-code: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python tools/generate_contract.py --check
	$(BIN)/python tools/generate_duties.py --check
	$(BIN)/python tools/generate_scripts.py --check
	$(BIN)/python tools/generate_sync.py --check

check-types: $(READY)
	$(BIN)/mypy

check-site: $(READY)
	@$(SITE) build --quiet

fix: $(READY) ## Format, mend what can be mended, and write anew what is generated
	$(BIN)/python tools/generate_contract.py
	$(BIN)/python tools/generate_duties.py
	$(BIN)/python tools/generate_scripts.py
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python tools/generate_sync.py
	$(BIN)/python tools/public_api.py

# Most tests wait for processes and servers: eight at a time keep two cores busy. They took 5.3 GB at
# most, so a machine with little memory runs six.
WORKERS := $(shell awk '/^MemTotal/ {print ($$2 > 7000000) ? 8 : 6}' /proc/meminfo 2>/dev/null || echo 6)
# .ci/run also calls test-heavy, test-campaign and test-install.
SHORT := not slow and not campaign and not combine and not full
HEAVY := spark or browser or celery
test: $(READY) ## The tests, on both cores (10 minutes)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m '$(SHORT) and not ($(HEAVY))' --ignore tests/packaging -rR

# Those with a browser or a JVM are tried once more (tests/conftest.py); the summary says which were. Stealing leaves a
# file, and with it a JVM or a browser, to one worker as long as all have work.
test-heavy: $(READY) ## The tests that start a JVM, Chromium or Celery's workers (5 minutes)
	$(BIN)/pytest -n 3 --dist worksteal -m '$(SHORT) and ($(HEAVY))' tests/integration -rR

# A row runs about ten processes, which wait for most of its time: it needs 7 s of a core in 25 s.
test-campaign: $(READY) ## The fault campaign in its short version, other kills at random, the examples, the longest proof of the model checker (4 minutes)
	$(BIN)/pytest -n 4 --dist worksteal -m 'campaign and not slow and not full' tests/campaign tests/model_checking tests/acceptance

# `make test` takes rows that cover each value, this takes the product; and the longest of what it has in short.
test-full: $(READY) ## Every row of the tables of which `make test` takes some, and ten times the examples
	$(BIN)/pytest -n 6 --dist worksteal -m 'full and not slow' tests -rR
	EXAMPLES=10 $(BIN)/pytest -n 6 --dist worksteal -m 'hypothesis and $(SHORT) and not ($(HEAVY))' tests -rR

# Pairs of all entries of the contract with each face, and triples of the twelve with most defects.
combine: $(READY) ## Every pair of features compared with the reference model (10 minutes)
	$(BIN)/pytest -n 2 --dist worksteal -m combine tests/combine

# In copies; TESTS="tests/scripts" runs fewer tests of the core, SLICES="schedules" deletes one slice only.
test-slices: $(READY) ## Each feature deleted in a copy, and the tests of the core there (5 minutes each)
	$(BIN)/python tools/test_slices.py $(SLICES) $(if $(TESTS),--tests $(TESTS))

# One target after another; a failure does not stop it. Interrupted, it goes on where it was, at the same commit.
test-all: $(READY) ## Every target with tests, and one table at the end (hours; needs the package registry)
	@$(BIN)/python tools/test_all.py

coverage: $(READY) ## The same with coverage, of child processes too; printed, no figure is demanded
	@mkdir -p .data/coverage
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 4 --dist worksteal -m '$(SHORT)' -rR
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --sort=cover

# Without those that have a target of their own.
OWN := tests/campaign/test_mutants.py tests/integration/celery tests/integration/frameworks tests/packaging \
  tests/integration/test_pages.py tests/acceptance/test_examples.py tests/integration/ui/test_site.py
test-slow: $(READY) ## The long volumes (more than half an hour)
	$(BIN)/pytest -n 3 --dist worksteal -m slow tests $(addprefix --ignore ,$(OWN)) -rR

# A failing seed is shrunk and told; `make simulate SEED=7` repeats one.
SEEDS ?= 10000
FIRST ?= 0
simulate: $(READY) ## Whole systems on one virtual clock, with faults, by seed: SEEDS=10000 FIRST=0, or one SEED=7 (a quarter of an hour)
	@PYTHONPATH=.:api:monitor $(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --first $(FIRST))

# It installs packages from the registry, into environments below the temporary folder. What fails is not tried again.
test-install: $(READY) ## README and docs/install.md word by word in an empty environment; the wheel on every Python (3 minutes)
	$(BIN)/pytest -p no:cacheprovider tests/packaging -rs

# Without the tests of the tools themselves, of browsers and of JVMs, and of what uvicorn learned to refuse.
LOWEST := .data/lowest
test-lowest: $(READY) ## Most tests with the lowest version of each dependency (15 minutes)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
	  --editable '.[api,sqs,monitor,schedules,embedded,otel,sql,celery,reload,testing]'
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python pytest pytest-timeout pytest-xdist pytest-rerunfailures \
	  httpx hypothesis pyyaml psutil 'psycopg[binary]' sentry-sdk
	$(LOWEST)/bin/python -m pytest -n 2 -m 'not slow and not browser and not spark' tests/unit tests/scripts \
	  tests/integration/client tests/integration/worker tests/integration/api tests/integration/cli \
	  --ignore tests/unit/test_generate_sync.py --ignore tests/unit/test_type_checkers.py \
	  --ignore tests/unit/test_reference.py --ignore tests/unit/test_documents.py --ignore tests/unit/test_recipes.py \
	  --deselect tests/unit/test_cycle.py::test_an_answer_that_is_not_http_ends_the_connection \
	  --ignore tests/integration/api/test_contract.py --ignore tests/integration/api/test_generated_client.py

test-docs: $(READY) ## The tutorial, the pages with Spark, all examples, and each page of the site in Chromium (15 minutes)
	$(BIN)/pytest -m slow tests/integration/test_pages.py tests/acceptance/test_examples.py tests/integration/ui/test_site.py

test-spark-matrix: $(READY) ## Reading, writing and streams with each line of PySpark since 3.5 (half an hour, 3 GB)
	$(BIN)/python tools/spark_matrix.py

# The suites come from the package registry, pinned by hash, into .data/sdists.
test-celery: $(READY) ## The integration suites of kombu and Celery, and 50 kills, on reliq; Airflow (20 minutes)
	$(BIN)/pytest tests/integration/celery tests/integration/frameworks -rR --timeout 9000

# Suites of others are copied into the temporary folder; what is missing is left out, and named.
SUITES ?= ../shared/suites
test-sqs: $(READY) ## Suites of others, SDKs of AWS, its command line, Terraform and Airflow against `reliq sqs` (3 minutes; SUITES= where they are)
	@PYTHONPATH=.:api:monitor $(BIN)/python tools/test_sqs.py --suites $(SUITES)

# Row by row into docs/operations/reliability.json; interrupted, it goes on where it was. SCALE=0.1: a tenth of the volumes.
SCALE ?= 1
faults: $(READY) ## The fault campaign in full, and its page (hours; as root also with a full disk)
	PYTHONPATH=.:api:monitor $(BIN)/python tools/faults.py --scale $(SCALE)
	PYTHONPATH=.:api:monitor $(BIN)/python tools/reliability.py

faults-mutants: $(READY) ## Mistakes put into copies of reliq, each of which the campaign must find (8 minutes)
	$(BIN)/pytest tests/campaign/test_mutants.py

# COUNT= how many, MUTANTS= which choice of them. cosmic-ray makes the mistakes in Python.
COUNT ?= 50
MUTANTS ?= 1
mutants: $(READY) ## Small mistakes in the core and the scripts, made by a tool, each of which the tests must find (an hour)
	@$(BIN)/python -c 'import cosmic_ray' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check cosmic-ray
	@$(BIN)/python tools/mutants.py --count $(COUNT) --seed $(MUTANTS)

# pip's own lines say which package, and how far. Without a network, what was installed before has to do.
$(DEMO): pyproject.toml
	@echo "Installing what the demo needs into $(VENV), once: a Redis, the HTTP service$(if $(SPARK),$(comma) Spark (about 450 MB))"
	@$(if $(SPARK),,echo "No Java here: the demo leaves out the Spark job")
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[embedded,api$(SPARK)]' || \
	  { $(BIN)/reliq --version && echo "pip failed, see above: going on with what is installed"; }
	@touch $(DEMO)

demo: $(DEMO) ## Messages survive kill -9, on real input
	@$(BIN)/reliq demo

# Peers that cannot be installed are left out, and named.
bench: $(READY) ## reliq beside its peers and the limit of Redis (10 minutes)
	@sh bench/peers/set_up.sh
	@PYTHONPATH=.:api:monitor $(BIN)/python -m bench

bench-full: $(READY) ## The same with the large volumes (an hour)
	@sh bench/peers/set_up.sh
	@PYTHONPATH=.:api:monitor $(BIN)/python -m bench --full

$(DOCS): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -f $(READY) || { echo "Installing what the site needs into $(VENV), once: MkDocs and the HTTP service (about 200 MB)"; \
	  $(BIN)/python -m pip install --disable-pip-version-check --progress-bar on --editable '.[docs]'; }
	@touch $(DOCS)

docs: $(DOCS) ## The documentation site, on http://127.0.0.1:8000; it follows changes
	@echo "Building the site; it opens on http://127.0.0.1:8000 in about half a minute"
	$(SITE) serve --livereload --watch reliq --watch README.md

pictures: $(READY) ## Draw the diagrams of the pages that are new or changed (needs npm and chromium)
	@$(BIN)/python -m tools.site.diagrams

recording: $(READY) ## The terminal in the README, of a real run of the demo (2 minutes; Java for its Spark job)
	@$(BIN)/python -m tools.site.recording

screenshots: $(READY) ## Pictures of the dashboard into docs/screenshots (5 minutes; needs chromium)
	@PYTHONPATH=.:api:monitor $(BIN)/python -m tests.integration.ui.screenshots

clean: ## Remove what the targets made
	rm -rf $(VENV) .bench .data .mypy_cache .ruff_cache .pytest_cache .hypothesis
