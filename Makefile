# Needs Python 3.11 or newer with venv and pip; everything else goes into .venv.
PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: help test types all-tests explore quick demo bench docs calibrate calibrate-links clean

help:
	@echo "make test    ruff, mypy --strict and all tests"
	@echo "make explore   the tests of drawn input with new draws each time"
	@echo "make quick   the tests without the slow ones"
	@echo "make demo    where every gigabyte of LLaMA-7B goes, and what mends a job that is too big"
	@echo "make bench   start-up and speed"
	@echo "make calibrate-links   presets/links/factors.toml from the measured collectives"
	@echo "make calibrate   presets/timing from the measured runs, and what docs tell of them"
	@echo "make docs    docs/cli.md and docs/formulas.md, generated"

$(STAMP): pyproject.toml
	@echo "making .venv (once)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || python3 -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $(STAMP)

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory -j 2 types all-tests

# Beside one another, since mypy takes one process: it has long ended when the last line of pytest comes.
types: $(STAMP)
	$(BIN)/mypy

all-tests: $(STAMP)
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 2

explore: $(STAMP)
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 2 --hypothesis-profile=explore $$(grep -rl hypothesis tests --include='test_*.py')

quick: $(STAMP)
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 2 -m "not slow"

demo: $(STAMP)
	@echo '$$ distsim memory llama-7b --gpus 8 --zero 2'
	@$(BIN)/distsim memory llama-7b --gpus 8 --zero 2
	@echo
	@echo '$$ distsim memory llama-7b --gpus 8 --zero 2 --micro-batch 16'
	@$(BIN)/distsim memory llama-7b --gpus 8 --zero 2 --micro-batch 16 || test $$? -eq 1

bench: $(STAMP)
	$(BIN)/python benchmarks/bench_startup.py
	$(BIN)/python benchmarks/bench_validate.py

calibrate-links: $(STAMP)
	$(BIN)/python -m distsim.engine.fitting.links presets/runs/collectives.csv presets/links/factors.toml

calibrate: $(STAMP)
	$(BIN)/python benchmarks/replays.py --fits
	$(BIN)/python benchmarks/peaks.py presets/timing/peaks.toml presets/runs/published.csv presets/runs/unseen.csv
	$(BIN)/python benchmarks/replays.py --docs
	$(BIN)/python benchmarks/published_bars.py --docs
	$(BIN)/python benchmarks/whole_runs.py --fit --docs

docs: $(STAMP)
	$(BIN)/python docs/generate.py

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
