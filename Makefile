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
# In the order of tests/conftest.py, not by the number of a file's tests.
pytest = $(run) -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder
longer = -m slow
first_part = tests/tasks tests/test_documented_code.py

.PHONY: help
help: ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

.PHONY: demo
demo: $(VENV)/.with-analysis ## Pre-train a small BERT on real text, save, reload and serve it.
	@$(run) -m keras_bertfam demo $(ARGS)

.PHONY: test
test: $(VENV)/.with-dev ## Run the quick tests, most of all, on the TensorFlow backend.
	KERAS_BACKEND=tensorflow $(pytest) $(ARGS)

.PHONY: test-all
# With other random texts each time.
test-all: ARGS += --seed $(shell date +%s)
test-all: test-tensorflow test-jax test-torch ## Run all tests on all backends, hours.

.PHONY: test-tensorflow test-jax test-torch
test-jax: $(VENV)/.with-bench
test-torch: $(VENV)/.with-bench
test-tensorflow test-jax test-torch: test-%: $(VENV)/.with-dev
	KERAS_BACKEND=$* $(pytest) -m "" $(ARGS)

.PHONY: test-slow
test-slow: $(VENV)/.with-dev $(VENV)/.with-bench ## Run the slow tests, on TensorFlow.
	@# In parts, as the processes grow with the tests that they run.
	KERAS_BACKEND=tensorflow $(pytest) $(longer) $(ARGS) $(first_part)
	KERAS_BACKEND=tensorflow $(pytest) $(longer) $(ARGS) $(addprefix --ignore=,$(first_part))

.PHONY: test-value
# Of the others what CI runs is measured: `make test-value BACKEND=jax ARGS=--ci`.
test-value: BACKEND ?= tensorflow
test-value: export KERAS_BACKEND = $(BACKEND)
test-value: $(VENV)/.with-dev $(VENV)/.with-bench ## Measure what each test costs and reaches alone.
	rm -rf build/value && mkdir -p build/value
	@# In parts, as the processes grow with the tests that they run.
	find tests -name 'test_*.py' | sort | TEST_VALUE=$$PWD/build/value \
		xargs -n 40 $(pytest) -m "" -p tests.value $(ARGS)
	$(run) -m tests.value build/value > build/value/report.txt
	head -3 build/value/report.txt

.PHONY: test-wheel
test-wheel: $(VENV)/.with-dev ## Build the wheel and try it away from the checkout.
	rm -rf build dist
	$(pip) wheel --no-deps --wheel-dir dist .
	$(run) -m venv --without-pip build/wheel-venv
	$(pip) --python build/wheel-venv/bin/python install --no-deps dist/*.whl
	$(run) -m pip --disable-pip-version-check check
	@# The dependencies are lent by $(VENV), without its link to the checkout.
	$(run) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$(build/wheel-venv/bin/python -c \
		'import sysconfig; print(sysconfig.get_path("purelib"))')/lent.pth"
	root=$$PWD; cd "$$(mktemp -d)" && \
		"$$root/build/wheel-venv/bin/python" "$$root/tests/wheel_smoke.py" "$$root"

.PHONY: lint
lint: $(VENV)/.with-dev ## Check style, formatting and types.
	$(run) -m ruff check .
	$(run) -m ruff format --check .
	$(run) -m mypy

.PHONY: format
format: $(VENV)/.with-dev ## Apply the formatting.
	$(run) -m ruff check --fix .
	$(run) -m ruff format .

.PHONY: docs
docs: $(VENV)/.with-dev ## Build the site of docs/ into build/site.
	TF_CPP_MIN_LOG_LEVEL=3 $(run) -m mkdocs build --strict --quiet

.PHONY: docs-gallery
docs-gallery: $(VENV)/.with-dev $(VENV)/.with-bench ## Make the pictures of the site's gallery, and the site.
	mkdir -p build/gallery
	cd build && for page in gallery senses; do \
		TF_CPP_MIN_LOG_LEVEL=3 $(abspath $(run)) ../docs/$$page.py || exit; done
	$(MAKE) docs

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

.PHONY: environment
environment: $(VENV)/.with-bench,dev ## Install all that the tests need, at once.

# `.with-NAME` marks that the package is installed with its extra NAME, or with several.
comma := ,
$(VENV)/.with-%: pyproject.toml setup.py | $(VENV)/pyvenv.cfg
	@echo "Installing keras_bertfam[$*] into $(VENV) (the first time takes a minute)"
	@$(run) tools/install.py '.[$*]'
	@touch $@ $(addprefix $(VENV)/.with-,$(subst $(comma), ,$*))
