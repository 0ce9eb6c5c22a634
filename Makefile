# Every target sets up what it needs by itself: `make demo` and `make test` work in a new clone.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
DEV := $(VENV)/.dev-installed
DEMO := $(VENV)/.demo-installed

.DEFAULT_GOAL := help
.PHONY: help demo demo-apache test test-unit test-apache test-apache-it test-spark-releases check format \
	bench faults lock clean \
	need-java need-java-only
.NOTPARALLEL:

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

demo: need-java-only $(DEMO) ## See it work: a load through failing brokers and Spark, with a report
	@$(RUN) -m rocketpipe demo $(ARGS)

demo-apache: need-java $(DEV) ## The same on real Apache RocketMQ 5.5.0, whose brokers are killed and frozen
	@$(RUN) scripts/demo_apache.py $(ARGS)

test: need-java $(DEV) ## Run every test, real Apache RocketMQ included
	@scripts/test

test-unit: $(DEV) ## Run the tests that are quick and need no Java
	@scripts/test -m "not apache and not slow"

test-apache: need-java $(DEV) ## Run the tests against real Apache RocketMQ 4.9.4 and 5.5.0
	@scripts/test -m apache

test-apache-it: need-java $(DEV) ## Run Apache's own integration tests against our cluster
	@$(RUN) scripts/apache_it.py

test-spark-releases: need-java $(DEV) ## Try PySpark 4.0, 4.1 and 4.2 too, 1.5 GB at the first time
	@$(RUN) scripts/spark_releases.py

check: $(DEV) ## Lint, formatting and types
	@scripts/check

format: $(DEV) ## Rewrite the code in the house style
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

bench: need-java $(DEV) ## Measure, as ratios to the peers
	@$(RUN) bench/run.py

faults: need-java $(DEV) ## See how each policy fares while a broker hangs, dies or is taken away
	@$(RUN) bench/faults.py

lock: ## Pin the newest versions of what requirements/*.in ask for
	@scripts/need python
	@$(PYTHON) -m venv $(VENV)/lock && $(VENV)/lock/bin/python -m pip install --quiet uv
	@for set in dev demo; do \
		$(VENV)/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --no-header \
			--no-emit-index-url --upgrade requirements/$$set.in \
			--output-file requirements/$$set.txt; \
	done

clean: ## Remove what the targets above made here
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	rm -f src/rocketpipe/_compiled*.so

# First of all prerequisites, so that whoever lacks a tool is told before anything is installed.
need-java:
	@scripts/need python java mvn

need-java-only:
	@scripts/need python java

# The stamp is written last, so that an interrupted installation starts over.
$(DEV) $(DEMO): $(VENV)/.%-installed: requirements/%.txt pyproject.toml setup.py $(wildcard csrc/*)
	@scripts/need python
	@echo "setting up $(VENV) ..."
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip install --quiet --requirement requirements/$*.txt
	@$(RUN) -m pip install --quiet --no-deps --no-build-isolation --editable .
	@$(RUN) -c "from rocketpipe.compiled import compiled; compiled or print('without the compiled part: no C compiler, or it failed; all works, slower')"
	@touch $@
