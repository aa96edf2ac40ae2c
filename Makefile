# make demo: the main job on the simulated engine. make test: the tests. make check: lint and types.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check all-tests clean
.DELETE_ON_ERROR:

demo: .venv/installed
	$(BIN)/paceline run smoke --new
	$(BIN)/paceline report "$$(ls -td runs/smoke-* | head -n 1)" -o report.html

test: .venv/installed-dev
	$(BIN)/pytest -n auto

all-tests: .venv/installed-dev
	$(BIN)/pytest -n auto -m "not gpu"

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache report.html

# uv makes the environment where it is installed; venv and pip do where it is not.
.venv/bin/python:
	@if command -v uv >/dev/null; then uv venv --quiet --allow-existing --python '>=3.11' .venv; \
	else $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'paceline needs Python 3.11 or newer: make PYTHON=python3.12 ...' >&2; exit 1; }; \
	  $(PYTHON) -m venv .venv; fi

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	@echo 'Installing paceline into .venv'
	@if command -v uv >/dev/null; then uv pip install --quiet --python .venv -c constraints.txt -e .; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .; fi
	@touch $@

.venv/installed-dev: .venv/installed
	@echo 'Installing the development tools into .venv'
	@if command -v uv >/dev/null; then uv pip install --quiet --python .venv -c constraints.txt -e '.[dev]'; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'; fi
	@touch $@
