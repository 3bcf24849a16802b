# The words a developer and CI type. `make demo` and `make test` need nothing done before them.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What users install: half of the packages, without the tools of developers.
USER_STAMP := $(VENV)/.installed-all
# For what needs tritonwatch alone: the environment that is there, such as that of the README.
INSTALLED = $(or $(wildcard $(STAMP)),$(wildcard $(BIN)/tritonwatch),$(USER_STAMP))
KUBERNETES ?= compose/kubernetes

# Where this is set, each worker and each process of the tests would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup tools tools-next demo check test test-all lint lint-types lint-rest compiled generate generate-kubernetes mixin bench test-docker verify-kubernetes fuzz soak gpu-check render docs sbom lock-images audit clean

help: ## Show these words
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 20

setup: $(STAMP) tools ## Create .venv, install everything pinned, get Prometheus and Alertmanager

$(STAMP): EXTRA = dev
$(USER_STAMP): EXTRA = all
$(STAMP) $(USER_STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else "tritonwatch needs Python 3.11 to 3.13, found %d.%d; try: make PYTHON=python3.12 demo" % v)'
	@echo "set-up, once: Python packages into $(VENV), a real Triton among them; quiet for one to three minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRA)]'
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 13))'; then \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps nvidia-pytriton==0.7.0; fi
	@touch $@

tools: ## Find Prometheus and Alertmanager, or install them
	@sh compose/install-tools.sh

tools-next: $(STAMP) ## Fetch what more tests need: newer Prometheus, Alertmanager and vmalert, nginx, an older Triton; installs Chromium
	@sh tests/support/fetch-next-tools.sh .cache/next || true
	@[ -x .cache/nginx/usr/sbin/nginx ] || { mkdir -p .cache/nginx && cd .cache && apt-get -qq download nginx && dpkg -x nginx_*.deb nginx && rm -f nginx_*.deb; } || echo "no nginx here: its test is skipped"
	@[ -d .cache/old-triton/pytriton ] || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target .cache/old-triton nvidia-pytriton==0.5.0 || true
	@sh tests/support/install-chromium.sh

demo: $(or $(wildcard $(STAMP)),$(USER_STAMP)) tools ## Watch a real Triton: ARGS=--once ends after the last step
	$(BIN)/tritonwatch demo $(ARGS)

lint: $(STAMP) ## ruff, mypy strict, import-linter, vulture
	@$(MAKE) --no-print-directory -j 2 lint-types lint-rest

lint-types:
	$(BIN)/mypy

lint-rest:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/vulture

# The workers of `make test` start at the same time: in a fresh clone each would compile every module and test.
compiled:
	@[ -d tests/__pycache__ ] || $(BIN)/python -m pytest --collect-only -q $(ARGS) > /dev/null 2>&1 || true

check: lint ## Lint and the tests that start no real servers
	$(BIN)/python -m pytest -m "not real" -n 2 --dist loadfile $(ARGS)

# Most tests wait for servers: twelve workers keep two cores busy. A file's tests stay together, and the files keep
# the order that tests/conftest.py gives them: the longest first. A busy machine shows late what a server does: what
# failed beside the others runs once more, alone, and only that counts; both results are printed. With ten failures pytest
# ends with 2 before all have run: then nothing runs again.
test: setup tools-next ## Everything that must pass: ARGS=tests/slo runs a part of the tests
	@$(MAKE) --no-print-directory -j 2 lint-types lint-rest compiled
	$(BIN)/python -m pytest -n 12 --dist loadfile --no-loadscope-reorder --durations=25 --maxfail 10 $(ARGS) \
		|| { [ $$? -eq 1 ] && echo "what failed, once more and alone:" && $(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(ARGS); }

test-all: ## All variants and versions, and many random examples: before a release
	TRITONWATCH_THOROUGH=1 $(MAKE) test

generate: $(INSTALLED) ## Write the committed rules and dashboards again
	$(BIN)/tritonwatch generate --objectives slo/objectives --alerts alerts/alerts.yaml --only rules --out alerts/generated/rules
	$(BIN)/tritonwatch generate --objectives slo/objectives --alerts alerts/alerts.yaml --only alertmanager --out alerts/generated/alertmanager
	$(BIN)/tritonwatch generate --objectives slo/objectives --alerts alerts/alerts.yaml --only dashboards --out dashboards/generated
	$(BIN)/python -m triton_slo.objective.reading > slo/objectives/objective.schema.json
	$(BIN)/python -m triton_slo.metrics_page > docs/metrics.md
	$(BIN)/python -m triton_alerts.reference > docs/alerts.md

# kustomize applies only what a list names, so both folders get one.
generate-kubernetes: $(INSTALLED) ## The rules and dashboards that compose/kubernetes applies with kustomize
	$(BIN)/tritonwatch generate --objectives slo/objectives --alerts alerts/alerts.yaml --format operator --only rules --out $(KUBERNETES)/rules
	$(BIN)/tritonwatch dashboards write --alerts alerts/alerts.yaml --format configmap --namespace triton --out $(KUBERNETES)/dashboards
	for list in rules dashboards; do \
		(cd $(KUBERNETES)/$$list && rm -f kustomization.yaml && printf 'resources:\n' > list && printf -- '- %s\n' *.y*ml >> list && mv list kustomization.yaml) || exit 1; done

# For those who have Grafana and Prometheus and want no clone; the name that users of other projects look for.
mixin: $(INSTALLED) ## Rules, dashboards and runbooks in dist/mixin, to copy or to import
	rm -rf dist/mixin && mkdir -p dist/mixin
	$(BIN)/tritonwatch generate --objectives slo/objectives --alerts alerts/alerts.yaml --only rules --out dist/mixin/rules
	$(BIN)/tritonwatch dashboards write --alerts alerts/alerts.yaml --format share --out dist/mixin/dashboards
	cp -r alerts/runbooks slo/objectives compose/systemd dist/mixin/
	@printf '%s\n' '- `rules/`: rule_files for Prometheus, made of `objectives/`; they expect the exporter as job `triton-exporter`.' \
		'- `dashboards/`: import them into Grafana, which asks for the data source. `runbooks/`: what each alert means and what to do.' \
		'- `systemd/`: units for exporter and bridge of `pip install tritonwatch[all]`. All of it: docs/start.md of the release.' > dist/mixin/README.md

test-docker: setup tools-next ## The compose stack on a real Docker engine; ten minutes, and not part of `make test`
	$(BIN)/python -m pytest tests/containers -o python_files='run_*.py' -x -s --timeout 1800 $(ARGS)

verify-kubernetes: setup tools-next ## Manifests and chart on a real Kubernetes API and operator: CONTEXT=NAME of kubectl, else a server of its own (needs Go)
	@sh tests/support/fetch-kubernetes-tools.sh .cache/kubernetes || true
	CONTEXT=$(CONTEXT) $(BIN)/python -m pytest tests/clusters -o python_files='run_*.py' -x -s --timeout 600 $(ARGS)

bench: $(STAMP) ## Ratios against peers, in one run
	$(BIN)/python -m pytest -o python_files='bench_*.py' -o timeout=3000 -s $(if $(ARGS),$(ARGS),tests/bench)

fuzz: $(STAMP) ## Fuzz the exporter's parsers, a minute each: ARGS="--seconds 600"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz]' || true
	$(BIN)/python tests/fuzz/parsers.py $(ARGS)

soak: setup tools-next ## Thirty minutes of faults, into docs/measurements.md: SOAK_MINUTES= and SOAK_SEED=
	@mkdir -p .cache/faketime && cd .cache && { apt-get -qq download libfaketime && dpkg -x libfaketime_*.deb faketime && rm -f libfaketime_*.deb; } || echo "no libfaketime here: no clock will jump"
	SOAK_MINUTES=$(or $(SOAK_MINUTES),30) $(BIN)/python -X dev -m pytest tests/compose/test_soak.py -s

gpu-check: $(STAMP) ## Prepare .gpu-check for a machine with a GPU, try it here, and print the command to run there
	$(BIN)/python tests/gpu/prepare.py

render: $(STAMP) ## Draw the dashboards with Grafana's own components (needs npm and Chromium)
	cd tests/dashboards/render && npm install --legacy-peer-deps --ignore-scripts --no-package-lock --no-audit --no-fund
	$(BIN)/python tests/dashboards/render/render.py

docs: $(STAMP) ## The documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict -q

sbom: $(STAMP) ## What the lock pins, as CycloneDX, in sbom.json
	$(BIN)/cyclonedx-py requirements --output-reproducible --of JSON -o sbom.json constraints.txt

lock-images: $(STAMP) ## What the images install, with hashes, from constraints.txt (asks the package index)
	PATH=$(CURDIR)/$(BIN):$$PATH sh compose/lock-images.sh

audit: $(STAMP) ## Ask the advisory database about every pinned package (needs the internet)
	$(BIN)/pip-audit --no-deps --disable-pip -r constraints.txt

clean: ## Remove what make made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
