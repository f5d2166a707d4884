# `make demo` and `make test` need Python 3.11 to 3.13 with pip and venv, nothing else.
SHELL := bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
# Test processes; each holds TensorFlow, about 1 GB.
WORKERS ?= 2
ARGS ?=

supported = import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,\
	$(shell $(name) -c '$(supported)' 2>/dev/null && echo $(name))))

run := $(VENV)/bin/python
pip := $(run) -m pip --disable-pip-version-check -qq
pytest = $(run) -m pytest -q -n $(WORKERS) --dist loadfile

.PHONY: help
help: ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

.PHONY: demo
demo: $(VENV)/.with-analysis ## Pre-train a small BERT on real text, save, reload and serve it.
	@TF_CPP_MIN_LOG_LEVEL=3 $(run) -m keras_bertfam demo $(ARGS)

.PHONY: test
test: test-tensorflow ## Run the tests on the TensorFlow backend.

.PHONY: test-all
test-all: test-tensorflow test-jax test-torch ## Run the tests on all three backends.

.PHONY: test-tensorflow test-jax test-torch
test-jax: $(VENV)/.with-bench
test-torch: $(VENV)/.with-bench
test-tensorflow test-jax test-torch: test-%: $(VENV)/.with-dev
	KERAS_BACKEND=$* $(pytest) $(ARGS)

.PHONY: test-slow
test-slow: $(VENV)/.with-dev $(VENV)/.with-bench ## Run the tests marked slow, and the comparison with transformers.
	KERAS_BACKEND=tensorflow $(pytest) -m slow $(ARGS)
	KERAS_BACKEND=tensorflow $(pytest) tests/conformance $(ARGS)

.PHONY: test-wheel
test-wheel: $(VENV)/pyvenv.cfg ## Build the wheel and try it in a fresh environment.
	rm -rf build dist
	$(pip) wheel --no-deps --wheel-dir dist .
	$(run) -m venv build/wheel-venv
	build/wheel-venv/bin/python -m pip --disable-pip-version-check -qq install dist/*.whl
	smoke=$$PWD/tests/wheel_smoke.py python=$$PWD/build/wheel-venv/bin/python; \
		cd "$$(mktemp -d)" && "$$python" "$$smoke"

.PHONY: lint
lint: $(VENV)/.with-dev ## Check style and formatting.
	$(run) -m ruff check .
	$(run) -m ruff format --check .

.PHONY: format
format: $(VENV)/.with-dev ## Apply the formatting.
	$(run) -m ruff check --fix .
	$(run) -m ruff format .

.PHONY: bench
bench: $(VENV)/.with-bench ## Measure ours beside the peers; ARGS=--quick for a short run.
	$(run) -m benchmarks $(ARGS)

.PHONY: clean
clean: ## Remove the environment and everything built.
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/pyvenv.cfg:
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed: \
	name one with 'make PYTHON=...'." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# `.with-NAME` marks that the package is installed with its extra NAME.
$(VENV)/.with-%: pyproject.toml setup.py | $(VENV)/pyvenv.cfg
	@echo "Installing keras_bertfam[$*] into $(VENV) (the first time takes minutes)"
	@$(pip) install --editable '.[$*]'
	@touch $@
