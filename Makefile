# On a new machine, `make run` and `make test` install everything that they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
UV ?= uv
DOCKER ?= docker
# Number of tests that run in parallel: up to eight two per processor, as they often wait for servers.
WORKERS ?= $(shell n=$$(nproc); echo $$((n > 8 ? n : n > 4 ? 8 : 2 * n)))
# Tests start Python some hundred times, so its bytecode is kept even if the environment disables this.
unexport PYTHONDONTWRITEBYTECODE
# It is written at the first import: most of what pip would compile is never imported.
export PIP_COMPILE := 0

.PHONY: help run test test-research test-hidden coverage test-all test-newest test-lowest programs e2e e2e-nodes lint docs bench speed soak mutants audit osv image sbom dist release-check push-chart version lock clean

help:  ## list these commands
	@sed -n 's/^\([a-z0-9-]*\):.*  ## \(.*\)/make \1	\2/p' $(MAKEFILE_LIST) | expand -t 18

run: $(VENV)/.run  ## watch this machine and serve it on http://127.0.0.1:2020/watcher
	$(BIN)/trimaran watch

# In CI all tests; elsewhere the fast tests only. ONLY selects tests, REPEAT repeats them, BUSY runs busy loops
# beside, and as root STALL lets them stand still for so many seconds at random moments.
FAST = -m "not slow and not e2e and not nodes"
PYTEST = -m pytest -n $(WORKERS) --dist worksteal
REPEAT ?= 1
BUSY ?= 0
STALL ?= 0
BESIDE = $(BIN)/python tests/support/repeat.py --times $(REPEAT) --busy $(BUSY) --stall $(STALL)
test: $(VENV)/.dev  ## run the tests; with CI=true also the slow ones, and as root install the servers that they need, and build others
	$(BIN)/python tests/support/programs.py install
	$(BESIDE) $(BIN)/python $(if $(ONLY),-m pytest $(ONLY),$(PYTEST) $(addprefix --ignore=,$(RESEARCH)) $(if $(filter true,$(CI)),,$(FAST)))

RESEARCH = tests/research tests/benchmarks
test-research: $(VENV)/.dev  ## run the tests of the scripts in research/ and benchmarks/
	$(BIN)/python $(PYTEST) $(RESEARCH)

test-hidden: $(VENV)/.dev  ## run the tests that need servers as on a machine that has none: they are skipped
	$(BIN)/python tests/support/programs.py hide $(BIN)/python $(PYTEST) -m "server and not e2e"

# Not a part of CI: tracing every line doubles the time of the tests.
coverage: $(VENV)/.dev  ## run all tests and measure their coverage (the minimum is in pyproject.toml)
	CI=true $(BIN)/python tests/support/programs.py install
	$(BIN)/coverage erase
	CI=true $(BIN)/coverage run $(PYTEST)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

test-all: $(BIN)/python  ## run the tests on each installed Python from 3.11 to 3.13
	@$(BIN)/python tools/pythons.py all $(MAKE) test

test-newest: $(BIN)/python  ## run the tests on the newest installed Python
	@$(BIN)/python tools/pythons.py newest $(MAKE) test

test-lowest: $(VENV)/.lowest  ## run the tests with the oldest dependencies that pyproject.toml allows (needs uv)
	$(VENV)/lowest/bin/python $(PYTEST) $(FAST)

# The programs are built once, into ~/.cache/trimaran or TRIMARAN_E2E_CACHE. See tests/control_plane/README.md.
# Number of modules that run in parallel, each with its own control plane: they mostly wait, and need 1 GB each.
E2E_WORKERS ?= 5
E2E_PROGRAMS = etcd kube-apiserver kube-controller-manager kube-scheduler kwok metrics-server trimaran-scheduler descheduler helm kubectl $(if $(ALL),kube-apiserver-oldest kube-scheduler-oldest)
programs: $(VENV)/.dev  ## build a Kubernetes control plane (needs Go; takes minutes, once)
	$(BIN)/python tests/control_plane/builds.py $(E2E_PROGRAMS)

e2e: programs  ## build a Kubernetes control plane if needed, and test against it; ALL=1 tests two versions
	$(BIN)/python -m pytest -n $(E2E_WORKERS) --dist loadscope --no-loadscope-reorder -m "e2e$(if $(ALL),, and not oldest)"

# As root only: nodes need control groups and namespaces. ALL=1 takes about half an hour.
NODE_PROGRAMS = etcd kube-apiserver kube-controller-manager kube-scheduler kubelet $(if $(ALL),kubectl metrics-server prometheus-3)
e2e-nodes: $(VENV)/.dev  ## test against real kubelets and containers on this machine (needs root, see tests/real_nodes/README.md); ALL=1 runs all of these tests
	$(BIN)/python tests/support/programs.py install-nodes
	$(BIN)/python tests/control_plane/builds.py $(NODE_PROGRAMS)
	$(BIN)/python tests/real_nodes/images.py
	$(BIN)/python tests/real_nodes/isolated.py $(BIN)/python -m pytest -m nodes --durations=8 tests/real_nodes$(if $(ALL),,/test_two_nodes.py)

lint: $(VENV)/.dev  ## check formatting, types, imports between the parts, and language
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/words.py
	$(BIN)/python tools/commit_subjects.py
	$(BIN)/python tools/version.py --check
	$(BIN)/python tools/size.py

docs: $(VENV)/.docs  ## build the documentation as a website, site/index.html; fails on broken links
	NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build

bench: $(VENV)/.dev  ## run the benchmarks (see benchmarks/README.md)
	@$(BIN)/python benchmarks

# On another machine the references may be a little off: RECORD=1 writes them.
speed: $(VENV)/.dev  ## fail if one of twelve figures takes more than twice its reference; RECORD=1 writes the references
	@$(BIN)/python benchmarks/gate.py $(if $(RECORD),--record)

# FOR=15 gives each script that many seconds, and leaves out the plans, of which `make test` draws a thousand.
FOR ?=
SOAK = $(if $(FOR),--most-seconds $(FOR))
soak: $(VENV)/.dev  ## kill a writer and a watcher 500 times, start one 1,000 times, attack one, draw 2,000 faults for moves; takes an hour, with FOR=15 a minute
	$(BIN)/python tests/soak/kills.py $(SOAK)
	$(BIN)/python tests/soak/attacks.py $(SOAK)
	$(BIN)/python tests/soak/starts.py $(SOAK)
	$(BIN)/python tests/soak/moves.py $(SOAK) $(if $(FOR),--faults 16)
	$(if $(FOR),,RANDOM_PLANS=10000 $(BIN)/python -m pytest -k many_plans tests/trimaran/planning/test_moves_plan.py)

# Not a part of CI: the first group takes minutes, the others hours. JOBS=2 runs two mutants at once.
GROUP ?= rebalancer
JOBS ?= 1
mutants: $(VENV)/.dev  ## change the code of a GROUP of modules (rebalancer, core, rest; of it ONLY=MODULE) in small ways, each of which a test must notice
	$(BIN)/python tools/mutants.py $(GROUP) $(ONLY) --jobs $(JOBS)

# Fails on a vulnerability that is not among the exceptions, and if OSV cannot be reached. OSV_URL selects a mirror.
OSV_URL ?= https://api.osv.dev/v1/query
EXCEPTIONS = $(shell sed -n 's/^\([A-Z][A-Za-z0-9-]*\).*/--ignore-vuln \1/p' requirements/audit-exceptions.txt)
audit: osv $(VENV)/.audit  ## query osv.dev for known vulnerabilities of the service's dependencies (needs the network)
	$(VENV)/audit/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off \
	  --vulnerability-service osv --osv-url $(OSV_URL) $(EXCEPTIONS) -r requirements/run.txt

osv: $(BIN)/python
	@$(BIN)/python requirements/reachable.py $(OSV_URL)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "trimaran needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Install the build tools first, so that source-only packages are built with the pinned versions of them.
INSTALL = sh requirements/install.sh $(BIN)/python --require-hashes
$(VENV)/.run: $(BIN)/python requirements/build.txt requirements/run.txt pyproject.toml
	@echo "installing the dependencies of trimaran into $(VENV), once; this takes a minute or more"
	@$(INSTALL) -r requirements/build.txt
	@$(INSTALL) --no-build-isolation -r requirements/run.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	@echo "installing the dependencies of the tests, once"
	@$(INSTALL) --no-build-isolation -r requirements/dev.txt
	touch $@

# These tools have environments of their own, so that their dependencies do not mix with those of the tests.
$(VENV)/.audit: $(VENV)/.run requirements/audit.txt
	$(BIN)/python -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet --require-hashes -r requirements/audit.txt
	touch $@

$(VENV)/.sbom: $(BIN)/python requirements/build.txt requirements/run.txt requirements/sbom.txt
	$(BIN)/python -m venv $(VENV)/sbom
	$(VENV)/sbom/bin/python -m pip install --quiet --require-hashes -r requirements/sbom.txt
	$(BIN)/python -m venv --clear --without-pip $(VENV)/sbom/listed
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/build.txt
	rm -rf $(VENV)/sbom/wheels  # as the image: a wheel is built where its tools are, and installed where they are not
	$(BIN)/python -m pip wheel --quiet --require-hashes --no-build-isolation --wheel-dir $(VENV)/sbom/wheels -r requirements/run.txt
	$(BIN)/python -m pip --python $(VENV)/sbom/listed/bin/python install --quiet --no-deps --no-index --find-links $(VENV)/sbom/wheels \
	  $$(ls $(VENV)/sbom/wheels | sed 's/-/==/; s/-.*//')  # by name: with a path the list would name the files
	$(BIN)/python -m pip --python $(VENV)/sbom/listed/bin/python uninstall --quiet --yes pip
	touch $@

$(VENV)/.docs: $(BIN)/python requirements/docs.txt
	$(BIN)/python -m venv $(VENV)/docs
	$(VENV)/docs/bin/python -m pip install --quiet --require-hashes -r requirements/docs.txt
	touch $@

$(VENV)/.lowest: $(VENV)/.run pyproject.toml
	$(UV) venv --quiet --allow-existing --python $(BIN)/python $(VENV)/lowest
	$(UV) pip compile --quiet --resolution lowest-direct $(addprefix --extra ,$(DEV_EXTRAS)) --python $(VENV)/lowest/bin/python --no-header \
	  --no-emit-index-url pyproject.toml -o $(VENV)/lowest.txt
	$(UV) pip install --quiet --python $(VENV)/lowest/bin/python -r $(VENV)/lowest.txt --group dev --group build pip --editable .
	touch $@

VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' trimaran/__init__.py)
# podman's own format has no health check.
FORMAT = $(if $(filter podman buildah,$(notdir $(DOCKER))),--format docker)
# Only a registry can store an image for several platforms: docker's buildx pushes it there, with a list of its packages
# including those of the base image; podman creates a manifest, for `podman manifest push`. Each platform is emulated,
# or built by a machine of that platform (docker buildx create --append).
IMAGE ?= trimaran
PLATFORMS ?=
BUILD = $(if $(PLATFORMS),$(if $(FORMAT),build,buildx build),build) $(FORMAT)
KEEP = $(if $(PLATFORMS),--platform $(PLATFORMS) $(if $(FORMAT),--manifest,--sbom=true --provenance=true --push --tag),--tag)
image:  ## build the image IMAGE:VERSION; DOCKER=podman selects another builder; PLATFORMS=linux/amd64,linux/arm64 several platforms
	$(DOCKER) $(BUILD) --build-arg VERSION=$(VERSION) --build-arg REVISION=$(shell git rev-parse HEAD) $(KEEP) $(IMAGE):$(VERSION) .

# The image's Python packages with versions and licenses, from a new environment made from the lock, without a
# developer's other packages.
SBOM ?= trimaran-$(VERSION).cdx.json
sbom: $(VENV)/.sbom  ## list the Python packages of the image, as CycloneDX
	sed 's/^dynamic = .*/version = "$(VERSION)"/' pyproject.toml > $(VENV)/sbom/pyproject.toml
	$(VENV)/sbom/bin/cyclonedx-py environment --pyproject $(VENV)/sbom/pyproject.toml --mc-type application --output-reproducible \
	  --output-format JSON --output-file $(SBOM) $(VENV)/sbom/listed/bin/python

# Address from which the files of dist/ will be downloaded; by default the folder itself.
URL ?=
dist: $(VENV)/.dev  ## build sdist, wheel, chart of IMAGE, kubectl plugin, SBOM and checksums into dist/, and try the wheel
	$(BIN)/python tools/dist.py
	$(MAKE) sbom SBOM=dist/trimaran-$(VERSION).cdx.json
	$(BIN)/python tools/release.py files --image $(IMAGE) $(if $(URL),--url $(URL))
	@ls dist

release-check: $(BIN)/python  ## name what this commit lacks for a release (see docs/release.md)
	@$(BIN)/python tools/release.py check

# A registry for charts, such as oci://REGISTRY/OWNER/charts.
CHARTS ?=
push-chart:  ## push the chart of dist/ to CHARTS (needs helm)
	@test -n "$(CHARTS)" || { echo "make push-chart CHARTS=oci://REGISTRY/PATH" >&2; exit 1; }
	helm push dist/trimaran-$(VERSION).tgz $(CHARTS)

version: $(BIN)/python  ## write the version of trimaran/__init__.py into chart, image names and documentation
	$(BIN)/python tools/version.py

# The extras of the image, and those of the tests.
EXTRAS = dashboard kubernetes signalfx simulator watcher
DEV_EXTRAS = $(EXTRAS) distributed notebook report
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
lock:  ## update requirements/*.txt from pyproject.toml (needs uv)
	$(COMPILE) pyproject.toml $(addprefix --extra ,$(EXTRAS)) -o requirements/run.txt
	$(COMPILE) --group build -c requirements/run.txt -o requirements/build.txt
	$(COMPILE) pyproject.toml $(addprefix --extra ,$(DEV_EXTRAS)) --group dev -c requirements/run.txt -o requirements/dev.txt
	$(COMPILE) --group audit -o requirements/audit.txt
	$(COMPILE) --group sbom -o requirements/sbom.txt
	$(COMPILE) --group docs -o requirements/docs.txt

clean:  ## remove the environment and all caches
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.*
