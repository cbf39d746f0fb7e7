PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
# GCC takes stores that llama.cpp's AMX kernels need for dead, and they crash at random (ggml-org/llama.cpp#26954).
AMX := $(shell grep -qsw amx_tile /proc/cpuinfo && echo -fno-dse -fno-tree-dse)
export CFLAGS += $(AMX)
export CXXFLAGS += $(AMX)
# Without its reader of images, which nothing here uses.
export CMAKE_ARGS += -DLLAVA_BUILD=OFF

.PHONY: demo test test-all recipes check lint format results clean

# One virtual environment; a stamp per set of packages, remade when the requirements change.
$(VENV)/bin/python:
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade pip

$(VENV)/starter.stamp: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing biorag[starter]; llama-cpp-python compiles (about 4 minutes, once) ..."
	$(PIP) -e '.[starter]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing biorag[dev]; llama-cpp-python compiles (about 4 minutes, once) ..."
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/starter.stamp

# Without llama-cpp-python, which takes minutes to build: answers are sentences of the evidence. Python compiles modules
# when they are first imported, which takes seconds; compiling all of them here takes half a minute. TORCH_INDEX: URL of
# PyTorch's CPU wheels, for a Linux without GPU, where the default index's PyTorch brings gigabytes of CUDA.
$(VENV)/encoder.stamp: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing biorag[encoder] into $(VENV) (a minute or two, by the network) ..."
	@$(if $(TORCH_INDEX),$(PIP) --no-compile --index-url $(TORCH_INDEX) torch)
	@$(PIP) --no-compile -e '.[encoder]'
	@touch $@

demo: $(VENV)/encoder.stamp
	$(BIN)/biorag index demo --name demo
	$(BIN)/biorag ask "How does metformin lower blood glucose?" --name demo -k 2
	$(BIN)/biorag ask "Why is pyridoxine given with isoniazid?" --name demo -k 2
	@echo
	@echo "Each answer is sentences of the evidence, word for word; [1] names their source. With papers of yours:"
	@echo "    $(BIN)/biorag index FOLDER --name mine"
	@echo "    $(BIN)/biorag ask QUESTION --name mine"

# Two to four processes of one thread each; a file of tests stays in one, for the models that its tests share.
PYTEST := $(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test: lint
	$(PYTEST) -m "not recipes and not long"

# Also the programs of scripts/, cases whose like `test` runs, and 300 examples where `test` takes 15.
test-all: lint
	$(PYTEST) -m "not recipes" --hypothesis-profile campaign

# Every packaged recipe at the scale smoke, 2 minutes of CPU each, the main paper's 9; `test` runs a short one.
recipes: $(VENV)/dev.stamp
	$(PYTEST) -m recipes

# What a change is checked with while it is made, in a minute on two cores: what needs no model and no index on a disk,
# breaks nothing on purpose, waits for nothing and takes no seconds. Whoever changes the store, recipes or what runs on
# many machines runs the tests of those folders too; `make test` runs all.
QUICK := --ignore tests/indexes --ignore tests/lab/recipes --ignore tests/lab/scale --hypothesis-profile quick
check: lint
	$(PYTEST) -m "not models and not faults and not recipes and not long" $(QUICK)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# make results DATA=folder: every figure of README and docs/results (about 45 minutes on 2 cores).
results: $(VENV)/starter.stamp
	$(BIN)/python -m scripts.results $(DATA)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
