# Everything starts from nothing: each target makes .venv when it is missing, installs, and goes.
PYTHON ?= python3
# The tested versions; for a GPU: a file that names your build of torch.
CONSTRAINTS ?= constraints.txt
BIN := .venv/bin
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 # sums of several threads differ in their last digits

.PHONY: install run test journeys check docs gen bench soak site model gpu-model lock changelog dist clean

install: .venv/installed

# In a checkout features/, training/ and serving/ are packages of interfere through links; an sdist has no links.
.venv/installed: pyproject.toml constraints.txt
	@for package in features training serving; do test -e interfere/$$package || ln -s ../$$package interfere/$$package; done
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/pip --disable-pip-version-check install --quiet --constraint $(CONSTRAINTS) --editable '.[dev]'
	@touch $@

run: install            ## profile, train, serve, match and measure on this machine, in a few minutes
	@$(BIN)/interfere quickstart

# Three workers on two cores, because tests of servers and processes wait for a fifth of their time.
WORKERS := --numprocesses 3
# Only these folders hold tests that watch the clock, or need Slurm: no others are imported for them.
MEASURING := tests/profiling tests/serving/workers tests/soak tests/training/onboarding
SLURM := tests/examples tests/serving/adapters/slurm tests/soak

test: install           ## behaviour and laws; under six minutes on two cores
	@$(BIN)/pytest -q -m 'not bench and not journey and not measuring' $(WORKERS) --dist loadfile
	@$(BIN)/pytest -q -m 'not bench and not journey and measuring and not slurm' $(MEASURING)

journeys: install       ## slow tests that every landing needs: whole commands, trainings, real servers, Slurm, docs
	@$(BIN)/pytest -q -m 'not bench and journey and not measuring' $(WORKERS) --dist loadfile
	@$(BIN)/pytest -q -m 'not bench and journey and measuring and not slurm' $(MEASURING)
	@$(BIN)/pytest -q -m 'not bench and journey and slurm' $(WORKERS) --dist worksteal $(SLURM)
	@RULE_LAW_SNAPSHOTS=10000 $(BIN)/pytest -q --timeout 900 $(WORKERS) tests/policy/rules/test_mask_and_rule.py

check: install          ## style, types, import rules, wire contract, install lines
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@PYTHONPATH=. $(BIN)/lint-imports --no-cache
	@if command -v npm >/dev/null; then cd serving/proto && npm ci --silent --no-audit --no-fund && npx --no-install buf lint \
	   && npx --no-install buf breaking --against contract-0.1.binpb; \
	 else echo "buf lint and buf breaking left out: npm is missing"; fi
	@$(BIN)/python -m tests.generated
	@$(BIN)/python -m tests.install_lines

gen: install            ## regenerate the protobuf code, the Grafana dashboard, the Prometheus rules and README's picture
	@$(BIN)/python -m grpc_tools.protoc --proto_path=serving/proto --python_out=. --pyi_out=. --grpc_python_out=. \
	  serving/proto/interfere/v1/policy.proto
	@$(BIN)/python -m deploy.monitoring
	@$(BIN)/python -m tests.docs.picture

docs: install           ## the documentation site, into build/site; a page outside docs/site/mkdocs.yml's nav or a dead link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --config-file docs/site/mkdocs.yml

bench: install          ## speed, as figures and ratios of one run, appended to tests/bench/history.jsonl
	@$(ONE_THREAD) $(BIN)/pytest -q -m bench tests/bench

soak: install           ## faults and loads for minutes: 50 × kill -9, full disk, 200,000 random requests, 20 models, 10,000 histories of a cluster
	@SOAK_ROUNDS=50 HISTORIES=10000 $(BIN)/pytest -q -m 'not bench' --timeout 3600 tests/soak tests/serving/models tests/packaging tests/serving/adapters/kubernetes/test_histories.py tests/serving/adapters/kubernetes/test_orders.py

site: install           ## jobs that really run on a real Slurm under every way to share, compared: two hours, resumes; SITE=--quick: a minute
	@$(BIN)/python -m examples.site $(SITE)

# A new workspace each time: the composition of groups is judged against the champion of its registry.
# cpu-groups: how pairs combine in groups of three and more, measured on another machine; its pairs are not learned.
model: install          ## the shipped default model, from the shipped tables
	@rm -rf .venv/model-work
	@SOURCE_DATE_EPOCH=0 $(ONE_THREAD) $(BIN)/interfere train --data cpu --group-data cpu-groups --work .venv/model-work \
	  --publish interfere/predict/default

gpu-model: install      ## the shipped GPU model, from the published throughputs below $INTERFERE_DATA/gavel
	@$(BIN)/interfere data import gavel "$${INTERFERE_DATA:-../shared/data}/gavel/oracle_throughputs.json" --out .venv/gpu-tables/gavel
	@SOURCE_DATE_EPOCH=0 $(ONE_THREAD) $(BIN)/interfere train --data .venv/gpu-tables/gavel --work .venv/gpu-model-work --no-measured-pairs \
	  --notice training/notices/gavel.md --models mean,additive,gp,ensemble --publish interfere/predict/gpu

# Hashes of every file of the tested versions, for pip install --require-hashes; made anew when constraints.txt changes.
LOCK := .venv/lock/bin/uv --quiet pip compile --universal --python-version 3.11 --generate-hashes --no-header --constraint constraints.txt
lock:                   ## deploy/image/*.lock: what the image installs, and what builds its wheel and its bill of materials
	@$(PYTHON) -m venv .venv/lock && .venv/lock/bin/pip install --quiet uv==0.13.9
	@$(LOCK) --extra serve --extra kubernetes --output-file deploy/image/requirements.lock pyproject.toml
	@printf '%s\n' 'hatchling>=1.27' 'cyclonedx-bom>=7.5' | $(LOCK) --output-file deploy/image/build.lock -

changelog: install      ## what .changes/ holds, into CHANGELOG.md: make changelog VERSION=0.2.0
	@$(BIN)/python -m deploy.changelog "$(VERSION)"

dist: install           ## the wheel, into dist/; equal bytes from equal sources
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf .venv interfere-work
