# Meterline's commands. All of them first bring .venv to what requirements-dev.lock says; nothing else is needed
# than make and PYTHON (3.11 or later) with its pip.

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
# Where it is set each of the hundreds of processes that the tests start would compile this project anew.
export PYTHONDONTWRITEBYTECODE =
# The settings of a deployment, with secrets of its own that nobody sees.
AS_DEPLOYED = env $$($(BIN)/python deploy/new_env.py) SERVE=console ALLOWED_HOSTS=gateway.example

.DEFAULT_GOAL := help
.PHONY: help run manage test slow matrix scripts conformance pairs agents faults contention attacks cuts reads plans fuzz chaos kills properties races restarts pauses check format bench books exports lock environment

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo 'PYTHON=python3.12 chooses the interpreter, PORT=8080 the port of `make run`, ARGS="-k name" adds arguments.'

run: environment ## Run everything here, with a demo, until Ctrl-C
	@$(BIN)/python -m deploy.run

manage: environment ## Run a manage.py command on what `make run` has started: make manage ARGS="import_catalog"
	@$(BIN)/python manage.py $(ARGS)

test: environment ## Run the tests, against a real PostgreSQL and Valkey
	$(BIN)/python -m pytest -n logical -m "not slow" $(ARGS)

slow: environment ## Run the tests that make test leaves out: upgrade, restart, install and measure, with engines of their own
	$(BIN)/python -m pytest -n 2 -m slow $(ARGS)

contention: environment ## Have four processes race for money, keys, prices, limits and rows, and print each promise's figures (make test: a little of each)
	$(BIN)/python -m tests.contention $(ARGS)

attacks: environment ## Attack on the whole scale (make test: a third of it)
	ATTACKS=whole READERS=250,1000 $(BIN)/python -m pytest tests/attacks $(ARGS)

cuts: environment ## Cut 10,000 clients off at random bytes (make test: 300)
	CLIENT_CUTS=10000 $(BIN)/python -m pytest tests/generation/test_client_faults.py $(ARGS)

reads: environment ## Read the books 250, 1,000 and 5,000 at once while others pay (make test: 1,000)
	READERS=250,1000,5000 $(BIN)/python -m pytest tests/attacks/test_reads.py $(ARGS)

plans: environment ## Fill a million counters after the plans are kept (make test: 50,000)
	COUNTERS=1000000 $(BIN)/python -m pytest tests/billing/backbone/test_plans.py $(ARGS)

fuzz: environment ## Send 100,000 mutilated bodies (make test: 1,000), and all that the OpenAPI document covers (a fifth)
	FUZZED_BODIES=100000 DOCUMENTED=whole $(BIN)/python -m pytest tests/door/test_request_bodies.py \
		tests/endpoints/test_schemathesis.py $(ARGS)

exports: environment ## Export a million generations in each format, and print how fast (make test: 12,000)
	EXPORTED_ROWS=1000000 $(BIN)/python -m pytest -s tests/endpoints/test_export_speed.py $(ARGS)

matrix: environment ## Prove and print who may do what in the console, and that no organization sees another (make test: a sixth)
	$(BIN)/python -m tests.matrix $(ARGS)

scripts: environment ## Have each text of every model hold each of 60 script payloads on every page (make test: one each; make slow: some pages in a browser)
	SCRIPTS=whole $(BIN)/python -m pytest -n logical tests/console/test_scripts.py $(ARGS)

conformance: environment ## Prove the API's contract row by row, and write docs/conformance.md
	$(BIN)/python -m tests.contract $(ARGS)

pairs: environment ## Prove every pair of client and provider protocol (make test: a third of the tests), and write docs/protocols.md
	$(BIN)/python -m tests.pairs $(ARGS)

agents: environment ## Have others' coding agents write a file, and frameworks and SDKs loop, over all protocols (make test: some)
	$(BIN)/python -m tests.clients.agents $(ARGS)

faults: environment ## Play every fault of a provider, streamed and not, alone and with another (make test: one in four), and print it all
	$(BIN)/python -m tests.faults $(ARGS)

chaos: environment ## Kill gateways, workers, Valkey and PostgreSQL 20 times in 5,000 answers (make test: 4 in 400; CHAOS=full: 150 in 50,000)
	$(BIN)/python -m tests.chaos $(ARGS)

kills: environment ## Kill engines' first starts 20 times, take the database away for 20 s (make test: 2, 6)
	KILLED_STARTS=20 AWAY_SECONDS=20 $(BIN)/python -m pytest -s tests/deploy/test_engines.py \
		tests/billing/backbone/test_database_away.py $(ARGS)

properties: environment ## Try 400 examples of each property, 20 seeds of the simulation, every cut (make test: 20, 1, one in ten)
	PROPERTIES=whole SIMULATED_SEEDS=20 $(BIN)/python -m pytest -n logical -m "not backbone" tests/wire tests/protocols \
		tests/upstream tests/routing tests/simulation tests/billing/test_pricing.py tests/billing/bills/test_gaps.py \
		tests/billing/bills/test_files.py $(ARGS)

races: environment ## Have 5,000 settlements settled and voided by four at once, a re-pricing applied by 60, tasks run in all orders (make test: 200, 12, 4)
	RACED_SETTLEMENTS=5000 RACED_REPRICINGS=30 TASK_ORDERS=whole $(BIN)/python -m pytest tests/billing/test_auditing.py \
		tests/billing/test_repricing.py tests/billing/test_tasks.py -k "exactly_one_wins or in_any_order" $(ARGS)

restarts: environment ## Restart gateways 20 times (make slow: once) under load, direct and behind nginx, by one process and two
	$(BIN)/python -m tests.restarts $(ARGS)

pauses: environment ## Pause gateways, and cut them off, for 40 seconds (make test: makes their leases old)
	PAUSE_SECONDS=40 $(BIN)/python -m pytest -s tests/billing/backbone/test_pauses.py $(ARGS)

check: environment ## Check format, lint, types, layers, migrations and deployment settings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@# As in production: fresh secrets, the console's settings, and no database.
	env $$($(BIN)/python deploy/new_env.py) SERVE=console ALLOWED_HOSTS=gateway.example sh -c '\
		$(BIN)/python manage.py makemigrations --check --dry-run && \
		$(BIN)/python manage.py check --deploy --fail-level WARNING'

format: environment ## Format the code and mend what lint can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: environment ## Measure the gateway beside its contenders
	$(BIN)/python -m bench $(ARGS)

books: environment ## Measure the pages of finance among a million generations (ARGS=10000000: among ten)
	$(BIN)/python -m bench.books $(ARGS)

lock: environment ## Resolve the dependencies of pyproject.toml into the two locks
	$(BIN)/uv pip compile --universal --generate-hashes --no-header pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --universal --generate-hashes --no-header --extra dev pyproject.toml -o requirements-dev.lock

environment:
	@$(PYTHON) deploy/install.py
