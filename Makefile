# Every target sets itself up in .venv: a fresh clone needs Python >= 3.11 and make, nothing else.
# PYTHON=/path/to/python chooses the interpreter of a new .venv.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: demo lab test test-all check bench fuzz clean help FORCE

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install -qq --no-input --disable-pip-version-check --root-user-action=ignore
PI_FUZZ_EXAMPLES ?= 1000000
ARGS ?=

# A .venv that was made in another folder points there: install again.
ifneq ($(shell cat $(VENV)/.pi-root 2>/dev/null),$(CURDIR))
MOVED := FORCE
endif

demo: $(VENV)/.pi-base ## run the quickstart in a real kernel and print the answer as it streams
	$(PY) -m pi_notebook.command demo $(ARGS)

lab: $(VENV)/.pi-lab ## open JupyterLab on the tutorials
	$(PY) -m pi_notebook.command lab --dir notebooks $(ARGS)

test: $(VENV)/.pi-test ## run the tests (ARGS="-k name" to choose)
	$(PY) -m pytest $(ARGS)

test-all: $(VENV)/.pi-test ## run what needs more: built packages, a real model, every other Python found here
	PY=$(PY) bash .ci/test-all

check: $(VENV)/.pi-check ## ruff, pyright, codespell, layout
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright --pythonpath $(PY)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) -m pyright --verifytypes pi_agent_kernel --ignoreexternal
	$(PY) -m codespell_lib .
	$(PY) -m pytest --quiet tests/test_layout.py tests/test_banned.py

bench: $(VENV)/.pi-base ## measure the kernel beside a bare-asyncio floor
	$(PY) bench/run.py $(ARGS)

fuzz: $(VENV)/.pi-test ## run the property tests for hours (PI_FUZZ_EXAMPLES=1000000)
	PI_FUZZ_EXAMPLES=$(PI_FUZZ_EXAMPLES) $(PY) -m pytest --timeout=0 tests/kernel/test_properties.py $(ARGS)

clean: ## remove everything that the other targets made
	rm -rf $(VENV) .venv-3.* dist build .artifacts .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# One stamp for each set of packages; it is older than pyproject.toml when they must be installed again.
$(VENV)/.pi-base: pyproject.toml $(MOVED)
	@bash .ci/venv $(VENV) "$(PYTHON)"
	@echo "installing pi-notebook into $(VENV) (once)"
	@$(PIP) --editable .
	@printf '%s' "$(CURDIR)" > $(VENV)/.pi-root
	@touch $@

$(VENV)/.pi-test: $(VENV)/.pi-base
	@echo "installing what the tests need (once)"
	@$(PIP) --editable '.[test]'
	@touch $@

$(VENV)/.pi-check: $(VENV)/.pi-test
	@echo "installing the checkers (once)"
	@$(PIP) --editable '.[test,check]'
	@touch $@

$(VENV)/.pi-lab: $(VENV)/.pi-base
	@echo "installing JupyterLab (once)"
	@$(PIP) --editable '.[lab]'
	@touch $@

FORCE:
