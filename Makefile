# Everything a newcomer needs: `make demo` and `make test`. Each target makes .venv first, so a machine with
# Python 3.11 or newer, make and g++ is enough. `make help` lists the targets.

# The first interpreter on PATH that is new enough; override with PYTHON=...
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done)
RUN := .venv/bin/python
READY := .venv/.ready
# One thread a worker: two workers on two cores would otherwise fight over them.
TEST_ENV := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
WORKERS ?= 2
JOBS ?= 1
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo demo-generate test check format accept bench coverage gpu-bundle gpu-check tritons clean venv

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(READY) ## compile a real model and two decoders; show what was found, its error and its speed
	@HF_HUB_OFFLINE=1 $(RUN) -m benchmarks.demo

demo-generate: $(READY) ## text from a real language model, by a generator derived from it; needs the extra gemma
	@HF_HUB_OFFLINE=1 $(RUN) -m benchmarks.demo_generate

test: $(READY) ## the fast tests
	$(TEST_ENV) $(RUN) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -q -rfE \
		-m "not slow and not gpu and not check" $(PYTEST_ARGS)

check: $(READY) ## lint, format, types, layering, packaging
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(TEST_ENV) $(RUN) -m pytest -q -rfE tests/test_layering.py tests/test_packaging.py tests/test_types.py

format: $(READY) ## rewrite the sources as `make check` wants them
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

accept: $(READY) ## every promise of a stage, measured (STAGE=1); resumes where it stopped
	@test -n "$(STAGE)" || { echo "make accept: which stage? For example: make accept STAGE=1" >&2; exit 2; }
	HF_HUB_OFFLINE=1 $(RUN) -m benchmarks.accept --stage $(STAGE) --jobs $(JOBS)

bench: $(READY) ## speed against PyTorch's own ways to the same result
	HF_HUB_OFFLINE=1 $(RUN) -m benchmarks.bench

coverage: $(READY) ## attentions fused in every Hugging Face model type, and why the others aren't; resumes where it stopped
	HF_HUB_OFFLINE=1 $(RUN) -m benchmarks.coverage --jobs $(JOBS)

gpu-bundle: $(READY) ## kernels and a script for a machine with a GPU, in build/gpu-bundle; made without one
	$(RUN) -m benchmarks.gpu.bundle

gpu-check: $(READY) ## make the bundle and run its script: checks, then times against other ways; needs a GPU
	@$(RUN) -m benchmarks.gpu

tritons: $(READY) ## the other Triton versions that slow tests run under, in build/triton (2 GB)
	$(RUN) -m tests.triton.versions

venv: $(READY) ## only make .venv

clean: ## remove what builds and tests left; .venv and the kernel store stay
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

# The stamp comes last, so an interrupted install is taken up again; pip skips what is there. Without build isolation
# nothing is downloaded a second time, and torch comes first because it is what a slow network should fail on early.
$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer on PATH; install one, or say PYTHON=/path/to/it" >&2; exit 1; }
	@$(RUN) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(RUN) -m pip install --quiet -c constraints.txt torch setuptools wheel
	$(RUN) -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev,hf]'
	@touch $@
