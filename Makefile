# One command each; everything below works from a fresh clone with Python 3.11+, git and make.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STUDY ?= config/config.yaml
# Tests that real processes, a browser or the documents' own commands make long; each has a line of its own below.
APART := --ignore tests/browser --ignore tests/docs --ignore tests/e2e --ignore tests/ssh --ignore tests/made --ignore tests/chaos

.PHONY: report test test-all test-chaos test-docs fidelity calibration lint format lock vllm-cpu test-vllm vllm-metrics
.PHONY: examples example-embedded example-2026-07-14 example-vllm-cpu clean help

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 20

report: .venv/run.stamp ## set up, then measure what is missing and write the report
	$(BIN)/snakemake --cores 1 report --configfile $(STUDY)

test: .venv/dev.stamp ## set up, then run every test but the slow ones
	$(BIN)/python -m pytest -n 2 -m "not slow and not vllm and not chaos" $(APART)
	$(BIN)/python -m pytest -m "not slow and not vllm" -n 2 tests/e2e/test_stale_only.py tests/ssh/test_study.py tests/e2e tests/ssh
	$(BIN)/python -m pytest -m "chaos and not slow" -n 2 tests/chaos
	$(BIN)/python -m pytest tests/browser
	$(BIN)/python -m pytest -n 2 tests/docs

test-all: .venv/dev.stamp ## also the tests that take minutes
	$(BIN)/python -m pytest -n 2 -m "not vllm and not chaos" $(APART)
	$(BIN)/python -m pytest -m "not vllm" -n 2 tests/e2e/test_stale_only.py tests/ssh/test_study.py tests/e2e tests/ssh
	$(BIN)/python -m pytest -m "chaos and not slow" -n 2 tests/chaos
	$(BIN)/python -m pytest tests/browser
	$(BIN)/python -m pytest -n 2 tests/docs

test-chaos: .venv/dev.stamp ## every fault of the chaos suite, and its table
	$(BIN)/python -m pytest -m chaos -n 2 tests/chaos

test-docs: .venv/dev.stamp ## what the documents show and say: commands, links, tables (3 minutes)
	$(BIN)/python -m pytest -n 2 tests/docs

fidelity: .venv/run.stamp ## the load client against an emitter that knows (3 minutes, on a quiet machine)
	$(BIN)/python benchmarks/client_fidelity.py --limit --write docs/client-fidelity.md

calibration: .venv/run.stamp ## whole studies whose truth is known, through the judge (6 minutes)
	$(BIN)/python benchmarks/calibration.py --check --write docs/calibration.md

lint: .venv/dev.stamp ## format, lint, types, workflow lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy scripts/*.py scripts/decodelab scripts/cargo scripts/sim
	$(BIN)/snakefmt --check --line-length 100 Snakefile workflow/rules

format: .venv/dev.stamp ## put everything into its normal form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/snakefmt --line-length 100 Snakefile workflow/rules

vllm-cpu: ## install a real vLLM for the CPU and make a tiny model (minutes, 2.5 GB)
	vllm-cpu/setup.sh

# $(call keep,NAME,STUDY): a report as a committed example; report.html, what only it needs, and evidence.json are too large for that.
keep = rm -rf docs/example-$(1) && cp -r report/$(2) docs/example-$(1) && cd docs/example-$(1) && \
  rm -rf partial report.html evidence.json && find figures -name '*.json' ! -name figures.json -delete

examples: example-2026-07-14 example-embedded ## renew the committed example reports (on a quiet machine)
	@if [ -x .venv-vllm/bin/vllm ]; then $(MAKE) example-vllm-cpu; \
	else echo "example-vllm-cpu: not renewed, there is no vLLM here (make vllm-cpu)"; fi

example-embedded: .venv/run.stamp ## renew that of the default study (3 minutes)
	$(BIN)/snakemake --cores 1 report --configfile config/config.yaml
	$(call keep,embedded,embedded)

example-2026-07-14: .venv/run.stamp ## renew that of the report of 2026-07-14 (seconds)
	$(BIN)/snakemake --cores 1 report --configfile config/2026-07-14-decode.yaml
	$(call keep,2026-07-14,2026-07-14-decode)

example-vllm-cpu: .venv/run.stamp vllm-cpu ## renew that of the real vLLM on the CPU (15 minutes)
	$(BIN)/snakemake --cores 1 report --configfile config/vllm-cpu.yaml
	$(call keep,vllm-cpu,vllm-cpu)

test-vllm: .venv/dev.stamp ## the study of config/vllm-cpu.yaml end to end; skipped, with a line, where vLLM cannot be had
	vllm-cpu/test.sh $(BIN)/python -m pytest

vllm-metrics: .venv/run.stamp vllm-cpu ## our metrics beside vLLM's own (8 minutes, on a quiet machine)
	$(BIN)/python benchmarks/vllm_metrics.py --check --write docs/vllm-metrics.md

lock: ## renew the lock files after a change in requirements/*.in
	$(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install -q pip-tools==7.6.2
	for part in run dev; do .venv-lock/bin/pip-compile -q --generate-hashes --allow-unsafe --no-header --strip-extras \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links -o requirements/$$part.lock requirements/$$part.in; done
	rm -rf .venv-lock

clean: ## remove the environment (never results)
	rm -rf .venv

.venv/run.stamp: requirements/run.lock
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q --require-hashes -r requirements/run.lock
	touch $@

.venv/dev.stamp: requirements/dev.lock .venv/run.stamp
	$(BIN)/pip install -q --require-hashes -r requirements/dev.lock
	touch $@
