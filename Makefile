# RAGEN in three commands: `make train`, `make test`, `make check`. `make help` lists the rest.

VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check
RECIPE ?= bandit
ARGS   ?=

# A Python to use instead of the first one found: make setup PYTHON=/path/to/python3.12
PYTHON ?=

# Where pip finds torch. Empty: wherever pip looks by itself, which on Linux means a CUDA build of several gigabytes unless a
# CPU wheel is at hand. Set it to PyTorch's index of CPU wheels (pytorch.org, "Get started", compute platform CPU) to avoid that:
#   make setup TORCH_INDEX=<address>
TORCH_INDEX ?=

.DEFAULT_GOAL := help
.PHONY: help setup train test check format clean

help: ## this list
	@echo "usage: make TARGET [VARIABLE=value]"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'
	@echo "variables: PYTHON (interpreter), TORCH_INDEX (index of torch wheels), RECIPE and ARGS (of make train)"

setup: $(VENV)/.train ## make .venv with the CPU build of torch and the package
	@echo "setup: $(VENV) is ready"

train: setup ## set up, then train: RECIPE=bandit ARGS="trainer.steps=5 seed=3"
	$(VENV)/bin/ragen train $(RECIPE) $(ARGS)

# The quality gates (ruff, mypy) are tests too, so that what CI runs is this one command.
test: $(VENV)/.dev ## set up, then run every test
	$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q

# Types are checked by the first of the tests, beside others: in a fresh clone mypy reads torch, which takes a core a minute.
check: $(VENV)/.dev ## formatting, lint, types, tests
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q

format: $(VENV)/.dev ## rewrite the files as `make check` wants them
	$(PY) -m ruff check --fix-only --quiet .
	$(PY) -m ruff format .

clean: ## remove .venv and every cache; runs/ stays
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# Each stamp is newer than what it was made from, or the step runs again.
$(VENV)/.venv:
	@python="$$(sh tools/find-python.sh $(PYTHON))" && echo "setup: making $(VENV) with $$python" && "$$python" -m venv --clear $(VENV)
	@touch $@

$(VENV)/.torch: $(VENV)/.venv constraints-cpu.txt
	@echo "setup: installing torch"
	@$(PIP) install --constraint constraints-cpu.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	@$(PY) -W ignore -c "import torch; torch.version.cuda and print('setup: note: this torch is a CUDA build; make setup TORCH_INDEX=... takes the CPU one')"
	@touch $@

$(VENV)/.train: $(VENV)/.torch pyproject.toml
	@echo "setup: installing ragen-rl and what training needs"
	@$(PIP) install --constraint constraints-cpu.txt --editable '.[train]'
	@touch $@

$(VENV)/.dev: $(VENV)/.train pyproject.toml
	@echo "setup: installing what the tests need"
	@$(PIP) install --constraint constraints-cpu.txt --editable '.[train,dev]'
	@$(PIP) install --no-deps 'trl==1.16.0' # its chat templates are a test corpus, its losses a reference; it is read, never imported
	@touch $@
