# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test docs lint test-fast test-slow clean

demo: $(READY)
	$(BIN)/lpgcn demo

test: lint test-fast

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The documentation is site/index.html."

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks docs examples
	$(BIN)/ruff format --check src tests benchmarks docs examples
	$(BIN)/mypy

test-fast: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal

test-slow: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal -m "slow or hypothesis" --hypothesis-profile unseen

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) runs site .mypy_cache .ruff_cache .pytest_cache .hypothesis
