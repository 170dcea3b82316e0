# Two commands for everyone: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The data of the tests that need some; they are skipped where it is absent.
ifndef MUSIGMA_DATA
ifneq ($(wildcard ../shared/data),)
export MUSIGMA_DATA := $(abspath ../shared/data)
export MUSIGMA_CHECKPOINTS := $(abspath ../shared/checkpoints)
endif
endif
# Python compiles modules when they are first used; to compile all of torch takes longer than to install it.
PIP := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt

MINUTES ?= 30
SEED ?= 0
KILLS ?= 100
PICTURES ?= 50

.PHONY: demo app test test-everywhere docs fuzz faults lint format tables clean

demo: $(VENV)/.core
	$(BIN)/musigma demo -o out/demo
	@echo "For pictures of your own in the browser: make app, then open http://127.0.0.1:7860/"

app: $(VENV)/.app
	$(BIN)/musigma app

test: lint
	# One thread for each of the workers: threads that share a core wait for each other.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto

test-everywhere: $(VENV)/.dev
	# A short part of the suite on every instruction set that this processor has.
	$(BIN)/python tests/everywhere.py -n auto

docs: $(VENV)/.docs
	# The documentation site, in out/site; a warning is an error.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "Open out/site/index.html. Its search needs a server: python3 -m http.server -d out/site"

fuzz: $(VENV)/.dev
	# Hostile inputs for MINUTES, from SEED on; tests/fuzz/run.py says how to repeat a case.
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/run.py --minutes $(MINUTES) --seed $(SEED)

faults: $(VENV)/.dev
	# Full disk, little memory, vanishing files, and KILLS at random moments over PICTURES.
	OMP_NUM_THREADS=1 MALLOC_ARENA_MAX=2 $(BIN)/python tests/faults/run.py --kills $(KILLS) --pictures $(PICTURES) --seed $(SEED)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

tables: $(VENV)/.core
	$(BIN)/python -m studies.documents.measured_weights studies/results
	$(BIN)/python -m studies.documents.fill_documents studies/results README.md CONTRIBUTING.md docs/*.md docs/gallery/*.md

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

# In one step, without .core before it, which saves a second run of pip.
$(VENV)/.docs: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[docs]'
	touch $@

$(VENV)/.app: $(VENV)/.core
	$(PIP) -e '.[app]'
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) out runs build dist .pytest_cache .mypy_cache .ruff_cache
	find src tests examples studies -name __pycache__ -type d -exec rm -rf {} +
