# make demo and make test do all their own set-up; PYTHON=/path/to/python chooses the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One thread per test process: the tests are tiny, two processes on two cores beat one process with two threads.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest -n auto --maxprocesses=8 --dist worksteal

SOAK ?= crash faults hostile memory fuzz load

.DEFAULT_GOAL := help
.PHONY: help demo studio test test-slow test-browser test-ray soak lint docs dist bench clean

help:  ## say what each target does
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "make %-10s %s\n", $$1, $$2}'

demo: $(VENV)/.installed  ## learn 60 characters, then 40 more from five pictures each (about five minutes); writes a report
	@$(BIN)/fscil demo

studio: $(VENV)/.installed-serve  ## open http://127.0.0.1:8000: teach and ask a model made of drawn pictures
	@$(BIN)/fscil serve --demo

test: $(VENV)/.installed-dev  ## run the tests
	@$(PYTEST)

test-slow: $(VENV)/.installed-dev  ## run the tests that take longer than 20 seconds each
	@$(PYTEST) -m slow --timeout=3600

test-browser: $(VENV)/.installed-browser .cache/axe/package/axe.min.js  ## try the pages in chromium (apt-get install chromium)
	@$(ONE_THREAD) $(BIN)/python -m pytest tests/browser -m browser -rs

test-ray: $(VENV)/.installed-ray  ## run experiments on a real Ray on this machine
	@$(ONE_THREAD) $(BIN)/python -m pytest tests/experiments -m ray -rs

soak: $(VENV)/.installed-dev  ## kill, fill, flood and fuzz a service on this machine (up to 90 minutes; SOAK=crash: one run)
	@for run in $(SOAK); do PYTHONPATH=tests/support $(BIN)/python -m soak $$run $(SOAK_OPTIONS) || exit; done

lint: $(VENV)/.installed-dev  ## check style (ruff) and types (mypy on the typed core)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

# From a copy of the pages alone: zensical also walks through what a checkout holds beside them, and never ends in .venv.
docs: $(VENV)/.installed-docs  ## build the documentation site in site/; fails on a dead link
	@rm -rf site .cache/pages && mkdir -p .cache/pages
	@cp -R mkdocs.yml *.md LICENSE CITATION.cff docs results .cache/pages
	@cd .cache/pages && $(CURDIR)/$(BIN)/zensical build --strict --clean
	@mv .cache/pages/site site
	@$(BIN)/python scripts/list_folders.py site/results
	@$(BIN)/python scripts/check_site.py site

dist: $(VENV)/.installed-dev  ## build wheel and source archive in dist/ and check what is in them
	@rm -rf dist
	@$(BIN)/python -m build
	@$(BIN)/twine check --strict dist/*
	@$(BIN)/python scripts/check_dist.py dist

bench: $(VENV)/.installed-dev  ## measure this machine: cost of each recipe on the embedded benchmark, the training loop, teaching and the service
	@for recipe in small official paper; do $(BIN)/fscil run kt_rcnet glyphs --recipe $$recipe --plan || exit; done
	@$(BIN)/python benchmarks/training.py
	@$(BIN)/python benchmarks/teaching.py
	@$(BIN)/python benchmarks/service.py

clean:  ## remove the virtual environment, caches, site/ and dist/ (runs and data stay)
	@rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis .cache site dist

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c '' 2>/dev/null || \
		{ echo "fscil needs Python 3.11 or newer, and '$(PYTHON)' does not start: install Python, or name one as in 'make $(MAKECMDGOALS) PYTHON=/usr/bin/python3.12'." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fscil needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1): install a newer one, or name one as in 'make $(MAKECMDGOALS) PYTHON=/usr/bin/python3.12'." >&2; exit 1; }
	@echo "Making the virtual environment $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV)
	@echo "Installing fscil and what it needs into $(VENV) (once; torch is large, so this takes some minutes) ..."
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[pretrained,onnx]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing the tools for tests and checks into $(VENV) ..."
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(VENV)/.installed-serve: $(VENV)/.installed
	@echo "Installing what serves the page into $(VENV) ..."
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[serve,explain]'
	@touch $@

$(VENV)/.installed-ray: $(VENV)/.installed-dev
	@echo "Installing Ray into $(VENV) ..."
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[ray]'
	@touch $@

$(VENV)/.installed-browser: $(VENV)/.installed-dev
	@echo "Installing what drives a browser into $(VENV) ..."
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[browser]'
	@touch $@

# Finds what a screen reader or a weak eye would stumble over; without it, or without npm, that test is skipped.
.cache/axe/package/axe.min.js:
	@mkdir -p .cache/axe
	@-cd .cache/axe && npm pack --silent axe-core@4.10.3 >/dev/null && tar xzf axe-core-*.tgz package/axe.min.js package/LICENSE

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "Installing what builds the documentation into $(VENV) ..."
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[docs]'
	@touch $@
