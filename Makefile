# Two commands do everything on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
UV ?= uv
DOCKER ?= docker

.PHONY: help run test e2e lint bench soak audit image lock clean
help:
	@echo "make run    watch this machine and serve it on http://127.0.0.1:2020/watcher"
	@echo "make test   run the tests (as root with CI=true it installs the servers they need)"
	@echo "make e2e    build a Kubernetes control plane (needs Go; takes minutes, once) and test against it; ALL=1: two versions"
	@echo "make lint   formatting, types, and the arrows between the parts"
	@echo "make bench  measure speeds (see benchmarks/README.md)"
	@echo "make soak   kill a writer 500 times and look at what each restart finds; takes minutes"
	@echo "make audit  ask osv.dev for known vulnerabilities of what the service runs with (needs the network)"
	@echo "make image  build the container image trimaran:VERSION (DOCKER=podman for another builder)"
	@echo "make lock   renew requirements/*.txt from pyproject.toml (needs uv)"

run: $(VENV)/.run
	$(BIN)/trimaran watch

test: $(VENV)/.dev
	sh tests/install-servers.sh
	$(BIN)/python -m pytest

# Programs are built once, into ~/.cache/trimaran (TRIMARAN_E2E_CACHE: another folder). See tests/control_plane/README.md.
E2E_PROGRAMS = etcd kube-apiserver kube-scheduler kwok metrics-server trimaran-scheduler $(if $(ALL),kube-scheduler-oldest)
e2e: $(VENV)/.dev
	$(BIN)/python tests/control_plane/builds.py $(E2E_PROGRAMS)
	$(BIN)/python -m pytest -m "e2e$(if $(ALL),, and not oldest)"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	@status=0; for script in $(filter-out benchmarks/soak.py,$(wildcard benchmarks/*.py)); do \
	  $(BIN)/python "$$script" || status=1; done; exit $$status

soak: $(VENV)/.dev
	$(BIN)/python benchmarks/soak.py

# Fails on a vulnerability that is not among the exceptions, and when the service cannot be asked. OSV_URL: a mirror.
OSV_URL ?= https://api.osv.dev/v1/query
EXCEPTIONS = $(shell sed -n 's/^\([A-Z][A-Za-z0-9-]*\).*/--ignore-vuln \1/p' requirements/audit-exceptions.txt)
audit: $(VENV)/.audit
	$(VENV)/audit/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off \
	  --vulnerability-service osv --osv-url $(OSV_URL) $(EXCEPTIONS) -r requirements/run.txt

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "trimaran needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(BIN)/python requirements/build.txt requirements/run.txt pyproject.toml
	@echo "installing what trimaran needs into $(VENV), once; this takes half a minute"
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/build.txt -r requirements/run.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	touch $@

# An environment of its own: what it brings does not belong among what is tested.
$(VENV)/.audit: $(VENV)/.run requirements/audit.txt
	$(BIN)/python -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet --require-hashes -r requirements/audit.txt
	touch $@

VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' trimaran/__init__.py)
image:
	$(DOCKER) build --build-arg VERSION=$(VERSION) --build-arg REVISION=$(shell git rev-parse HEAD) --tag trimaran:$(VERSION) .

COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
lock:
	$(COMPILE) pyproject.toml --all-extras -o requirements/run.txt
	$(COMPILE) --group build -c requirements/run.txt -o requirements/build.txt
	$(COMPILE) pyproject.toml --all-extras --group dev -c requirements/run.txt -o requirements/dev.txt
	$(COMPILE) --group audit -o requirements/audit.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
