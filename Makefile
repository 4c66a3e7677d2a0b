# make demo    install, index this Python's standard library, show hits, as found and re-ordered; again: only the hits
# make test    install everything and run the tests
# make check   lint, types, layers
# make clean   remove what the others made, the environment too
# Another interpreter: make demo PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

CORPUS := demo/stdlib.jsonl
INDEX := demo/stdlib-index
QUERIES := data/demo_queries.jsonl
RERANKER := $(wildcard data/models/minilm-reranker/model.safetensors)

.PHONY: demo test check clean
.DELETE_ON_ERROR:

demo: $(INDEX)/manifest.json
	$(if $(RERANKER),@echo "== first stage alone (bi-encoder) ==",)
	$(BIN)/retrieve query $(INDEX) --queries $(QUERIES) -k 3 --reranker none
ifneq ($(RERANKER),)
	@echo && echo "== re-ordered (cross-encoder), with each hit's place in the first stage =="
	$(BIN)/retrieve query $(INDEX) --queries $(QUERIES) -k 3 --reranker auto
endif

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest

check: $(VENV)/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) demo build dist *.egg-info retrieval/*.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Python 3.11 or newer is needed, $(PYTHON) is %d.%d: try make PYTHON=python3.12" % v[:2])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV): a few minutes, 1 to 2 GB"
	$(INSTALL) -e ".[cpu]"
	touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing everything into $(VENV): a few minutes, 2 GB"
	$(INSTALL) -e ".[all,dev]"
	touch $@

$(CORPUS): data/stdlib_corpus.py | $(VENV)/installed-demo
	mkdir -p demo
	$(BIN)/python data/stdlib_corpus.py $@

$(INDEX)/manifest.json: $(CORPUS) | $(VENV)/installed-demo
	$(BIN)/retrieve build-index $(if $(wildcard $@),--overwrite) $(CORPUS) $(INDEX)
