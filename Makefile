# Two commands do everything: `make run` and `make test`. Both set up .venv first.
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
# Python writes the bytecode of what it imports, whatever the environment says: pip's compiling of all
# that it installs would take a third of its time, and most of it is never imported.
unexport PYTHONDONTWRITEBYTECODE
PIP     := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
# With the build tools of .venv, so that the core is built once and `make core` finds it done.
INSTALL := $(PIP) --no-build-isolation -e
# Another call of make. Not with -j: ninja would look for the jobs of make, which it cannot reach.
AGAIN   := $(MAKE) --no-print-directory
# Makes a target while the browser is installed.
BESIDE   = $(AGAIN) browser & browser=$$!; $(AGAIN) $(1); made=$$?; wait $$browser; exit $$made
# Said when pip or the compiler gave up.
FAILED  := { echo "make: the set-up did not finish, see above. It runs at first, and again when pyproject.toml or" \
           "constraints.txt changed. What is not installed yet needs a package index: that cannot be done offline."; exit 1; }
# What `make run` needs, what everybody who changes something needs, Ray for the tests on a cluster, and
# the libraries whose test vectors are put to ours (JAX among them: 400 MB).
READY   := $(VENV)/.ready
TOOLS   := $(VENV)/.tools
CLUSTER := $(VENV)/.cluster
OPINIONS := $(VENV)/.opinions
# Installed without what they ask for: torch, which nothing here uses. Open Bandit Pipeline judges our
# estimators, seaborn and tqdm are what it imports, and RecBole carries MovieLens 100K.
ALONE    = --no-deps obp recbole seaborn tqdm
NOTE    := $(VENV)/.note
MAIN    := lab,audit,service
ALL     := $(MAIN),postgres,docs,dev
# Where nothing is installed yet, what will be needed is installed at once.
EXTRAS  := $(MAIN)
$(TOOLS) $(CLUSTER): EXTRAS := $(ALL)

.PHONY: run core test test-all check docs docs-serve tables reproduction notebooks leaderboard note clean help
.DEFAULT_GOAL := help

help:            ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

# pip is not upgraded: the one that comes with Python is enough, and offline it could not be. The core
# is built while pip unpacks what it needs when it runs: behind it, because pip uses one processor only.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "dpbandit needs Python 3.11 or newer; try: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing packages into $(VENV) and building the core"
	@$(PIP) $$($(BIN)/python tools/backend.py needs) || $(FAILED)
	@$(BIN)/python tools/backend.py requires $(EXTRAS) > $(VENV)/requires.txt
	@nice $(BIN)/python tools/backend.py >$(VENV)/core.log 2>&1 & core=$$!; \
	  $(PIP) -r $(VENV)/requires.txt; packages=$$?; \
	  { wait $$core || { cat $(VENV)/core.log; false; }; } && [ $$packages = 0 ] || $(FAILED)
	@$(INSTALL) . --no-deps || $(FAILED)
	@echo $(EXTRAS) > $@

$(TOOLS): $(READY)
	@[ "$$(cat $(READY))" = $(ALL) ] || { echo "installing what tests and documentation need" \
	  && $(INSTALL) '.[$(ALL)]'; } || $(FAILED)
	@$(PIP) $(ALONE) || $(FAILED)
	@touch $@

$(CLUSTER): $(TOOLS)
	@echo "installing Ray and zig"
	@$(INSTALL) '.[$(ALL),cluster]' ziglang || $(FAILED)
	@touch $@

$(OPINIONS): $(CLUSTER)
	@echo "installing the libraries of the second opinions"
	@$(INSTALL) '.[$(ALL),cluster,second-opinions,note]' || $(FAILED)
	@touch $@

# Typst, which sets the note: 34 MB that nothing else needs.
$(NOTE): $(READY)
	@$(INSTALL) '.[lab,note]' || $(FAILED)
	@touch $@

core: $(READY)   ## build the compiled core from src/core; only what changed is compiled
	@$(BIN)/python tools/backend.py

run: core        ## reproduce the paper's experiments and judge its claims; figures and report.html in out/
	$(BIN)/dpbandit reproduce --out out

# Three at a time on two processors: tests of the service, the pages and the browser mostly wait. A
# file is one worker's, so that what its tests share is made once.
PYTEST  := $(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder

# Browser tests need a Chromium: installed where apt can, otherwise those tests say that they did not run.
.PHONY: browser
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
	  && { apt-get install -y -qq chromium >/dev/null 2>&1 || { apt-get update -qq >/dev/null 2>&1; apt-get install -y -qq chromium >/dev/null 2>&1; }; } || true; }

test:            ## the tests that every change must pass (minutes)
	@$(call BESIDE,$(TOOLS))
	@$(AGAIN) core
	$(PYTEST)

test-all:        ## the slow statistical and soak runs as well, and those on a cluster
	@$(call BESIDE,$(CLUSTER))
	@$(AGAIN) $(OPINIONS) core
	$(PYTEST) -m 'slow or not slow'

check: $(TOOLS)  ## format, lint, type-check, and see that imports point downward
	$(BIN)/ruff format src tests experiments benchmarks tools
	$(BIN)/ruff check --fix src tests experiments benchmarks tools
	$(BIN)/mypy
	$(BIN)/lint-imports

# The warning that is silenced is about MkDocs 2, which pyproject.toml rules out.
docs: $(TOOLS) $(NOTE) ## build the documentation site into build/site; a broken link is an error
	@$(BIN)/python -m experiments.note.paper
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html, or make docs-serve for a site with search"

note: $(NOTE) core ## compute the technical note's numbers and set docs/note/dpbandit-note.pdf
	$(BIN)/python -m experiments.note --pdf

docs-serve: $(TOOLS) ## show the site on http://127.0.0.1:8000 while you write
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

tables: $(TOOLS) core ## write the generated tables into docs/
	$(BIN)/python -W ignore tests/privacy/planted.py --write
	$(BIN)/python tests/mutants/explained.py --write

reproduction: core ## run the paper profile and put its report and figures into docs/reproduction/
	$(BIN)/dpbandit reproduce --profile paper --out build/reproduction
	mkdir -p docs/reproduction
	cp build/reproduction/report.html build/reproduction/verdicts.json build/reproduction/config.json build/reproduction/figure-*.png docs/reproduction/

notebooks: $(TOOLS) core ## run the notebooks in examples/ and save what they show
	$(BIN)/python tools/notebooks.py

leaderboard: core ## what privacy costs, every algorithm in 27 worlds: docs/leaderboard.md (some 40 minutes; goes on after Ctrl-C)
	$(BIN)/dpbandit bench privacy-cost --profile full --out build/leaderboard --docs docs/leaderboard.md

clean:           ## remove the environment and everything generated
	rm -rf $(VENV) out build/core src/dpbandit/_core.*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
