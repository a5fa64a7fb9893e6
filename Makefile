# Every target sets up what it needs in .venv, from nothing but Python 3.11+.
BIN := .venv/bin
DEV := .venv/.ready-dev
PEERS := .venv/.ready-bench
# make test ORDER=random runs tests in an order drawn anew; ORDER=number repeats one that was printed.
ORDER := 0
PYTEST = $(BIN)/pytest -n 4 --dist worksteal -q --order-seed $(ORDER)

# Where it is set, each of the hundreds of processes that tests start would compile everything it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo quick test disturbed torture check format bench docs pictures lock golden clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

$(DEV): requirements/dev.lock pyproject.toml tools/setup.sh
	@tools/setup.sh requirements/dev.lock $@

$(PEERS): $(DEV) requirements/bench.lock
	@tools/setup.sh requirements/bench.lock $@

demo: $(DEV) ## See it work: sample jobs with a month of history, and their dashboard
	@$(BIN)/horae demo

quick: $(DEV) ## Rules, text formats, architecture, the store's contract on SQLite: for daily work
	@HORAE_TIER=quick $(PYTEST)

test: $(DEV) ## Run every test that must pass before a change is merged
	@tools/sandbox.sh
	@tools/browser.sh
	@$(PYTEST)

disturbed: ORDER := random
disturbed: $(DEV) ## make test beside busy loops, with processes stopped at random: no test may notice
	@$(BIN)/python -m tools.disturb -- $(MAKE) --no-print-directory test ORDER=$(ORDER)

torture: ORDER := random
torture: $(DEV) ## Everything at full depth: twenty-five seeds, PostgreSQL 16 too, every button on both stores
	@tools/sandbox.sh
	@tools/browser.sh
	@HORAE_TIER=torture $(PYTEST)

check: $(DEV) ## Formatting, lint, strict types, architecture
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/pytest -q tests/architecture

format: $(DEV) ## Rewrite the sources in the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(PEERS) ## Measure against peers, side by side in one run
	@$(BIN)/python -m bench

docs: $(DEV) ## Build the documentation's site; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html"

pictures: $(DEV) ## Photograph the dashboard for the documentation
	@tools/browser.sh
	@$(BIN)/python -m tools.pictured

golden: $(DEV) ## Write generated documentation anew from the code
	@$(BIN)/python -m tools.generate

lock: $(DEV) ## Resolve the lock files anew
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 --group dev pyproject.toml --output-file requirements/dev.lock
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 --group dev --group bench pyproject.toml --output-file requirements/bench.lock
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 --group bench-apscheduler4 pyproject.toml --output-file requirements/bench-apscheduler4.lock

clean: ## Remove the environment and every cache
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
