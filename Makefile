# Everything runs in .venv, made from pyproject.toml and constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test test-slow test-attack check bench docs clean

run: $(STAMP)  ## compare methods on a bundled example and write report.html
	$(BIN)/kikuchi compare example:grid10 --methods jt,bp,bp:schedule=residual,kikuchi,mf,gibbs --report report.html

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

bench: $(STAMP)  ## every performance figure, as a ratio to a baseline of the same run
	$(BIN)/python -m benchmarks

docs: $(STAMP)  ## the site, in site/
	$(BIN)/mkdocs build --strict

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) site report.html .pytest_cache .mypy_cache .ruff_cache .hypothesis
