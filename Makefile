# Every target does its own set-up: a virtual environment in .venv with locked dependencies and the
# compiled kernel.  Nothing is assumed but Python >= 3.11 and make; a C compiler is used if it is there.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
KERNEL_SOURCE := $(wildcard src/distributedlog/records/_kernel*.py src/distributedlog/records/*.pxd)
FIND_JAVA := $(BIN)/python -c 'from distributedlog.spark.session.java import main; raise SystemExit(main())'
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
# What is run again with the interpreted kernel: what is made of it, and one broker that is killed again and again.
KERNEL_TESTS := $(addprefix tests/unit/,records storage embedded replication) tests/fuzz \
    tests/simulation/test_raft_storage.py tests/system/test_broker_kill.py

# Tests start hundreds of processes: none of them compiles again what another one has.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup check quick format test demo bench simulate chaos compat compat-jvm soak lock proto clients java clean

help:            ## show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements/dev.txt pyproject.toml setup.py $(KERNEL_SOURCE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "distributedlog needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -c 'from distributedlog.records import kernel; print("record kernel:", kernel.FORM)'
	@touch $(READY)

setup: $(READY)  ## virtual environment, locked dependencies, compiled kernel

check: $(READY)  ## lint, format, types, layering, tidiness
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/tidy

quick: $(READY)  ## the checks and the unit tests of what a change touches, in two minutes; BASE=main
	@$(BIN)/python -m tests.quick --base $(or $(BASE),main)

format: $(READY) ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clients: $(READY) ## bring the clients that are no Python packages: KafkaJS, kcat
	$(BIN)/python -m tests.compat.broker.install

java: $(READY)   ## find Java 17 or newer for Spark, or bring it with pip
	@$(FIND_JAVA) || { $(BIN)/python -m pip install --quiet --require-hashes -r requirements/jre.txt && $(FIND_JAVA); }

test: $(READY) clients java ## everything a change must pass, on both forms of the kernel
	-@$(BIN)/python -m distributedlog.pipelines.archive # Spark starts sooner then, many times
	$(PYTEST) tests/unit tests/fuzz tests/simulation tests/compat tests/system tests/chaos tests/mutants
	$(PYTEST) tests/spark
	DLOG_KERNEL=interpreted $(PYTEST) $(KERNEL_TESTS)

simulate: $(READY) ## seeded simulations; KIND=raft|control|groups|brokers|transactions|sinks SEED= RUNS= SECONDS= FLAVOUR= KEEP_GOING=1
	$(BIN)/python -m tests.simulation --kind $(or $(KIND),raft) --seed $(or $(SEED),1) --runs $(or $(RUNS),20) \
	    --seconds $(or $(SECONDS),30) $(if $(FLAVOUR),--flavour $(FLAVOUR)) $(if $(KEEP_GOING),--keep-going)

chaos: $(READY)  ## faults against real brokers under real clients; MINUTES= SEED= BROKERS=3|5 NEMESES=a,b JAVA=yes|no MODE=safe|acks-1|unclean|unsynced|careless
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),2) --brokers $(or $(BROKERS),3) \
	    $(if $(SEED),--seed $(SEED)) $(if $(NEMESES),--nemeses $(NEMESES)) $(if $(MODE),--mode $(MODE)) $(if $(JAVA),--java $(JAVA))

compat: $(READY) clients ## unmodified clients against our broker and our bytes: the matrix; BROKERS=3 kills some meanwhile
	DLOG_COMPAT_BROKERS=$(or $(BROKERS),1) $(PYTEST) tests/compat

compat-jvm: $(READY)  ## Kafka's own tools and Java client against our broker, our client against Kafka, both brokers compared, by Maven
	$(BIN)/python -m tests.jvm
	$(BIN)/python -m tests.compat.client
	$(BIN)/python -m tests.compat.differential

soak: $(READY)   ## the long forms of the same tests
	DLOG_SOAK=1 $(PYTEST) tests/unit tests/fuzz tests/simulation tests/system tests/chaos
	DLOG_SOAK=1 $(PYTEST) tests/spark

demo: $(READY) java ## see it work
	$(BIN)/python -m demo

bench: $(READY)  ## speed, as ratios in one run; SECTION=log CASE="part of a name"
	$(BIN)/python -m tests.bench $(if $(CASE),--case "$(CASE)") $(SECTION)

lock: $(READY)   ## pin requirements/*.in with hashes
	$(BIN)/python -m pip install --quiet uv
	for name in dev jre; do \
	    $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	        --no-emit-find-links --custom-compile-command "make lock" requirements/$$name.in \
	        -o requirements/$$name.txt || exit 1; done

proto: $(READY)  ## regenerate the gRPC messages
	$(BIN)/python -m distributedlog.control.generate

clean:           ## remove everything that was made
	rm -rf $(VENV) build dist .bench .chaos .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find src -name '*.so' -delete
	rm -rf src/*.egg-info tests/compat/broker/kafkajs/node_modules
