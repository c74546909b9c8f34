# Every target that is for people is in `make help`.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# The steps of "test" share two cores and one build cache; their order is their sense.
.NOTPARALLEL:

# The CLI that tests run: the pinned one unless CLI says otherwise. The oldest one that is supported.
CLI_VERSION := 1.0.102
CLI_OLDEST := 1.0.81
CLI ?= $(CLI_VERSION)
# Which end-to-end tests: a file of test names, core or entry (see .ci/e2e); by default all.
PART ?=
# How long each fuzz target runs.
FUZZTIME ?= 2s
# Of faults: the first seed (0 takes the time, and prints it), how long they go on or how many schedules are played, how
# many more with the real CLI, how many at once, and the turns of soak.
SEED ?= 0
MINUTES ?= 0
COUNT ?= 0
REAL ?= 0
PARALLEL ?= 4
TURNS ?= 100000
# Flags of the benchmarks, such as "-repeats 9" or "-only ingest,fanout -write ''", and of mutate, such as "-sample 7".
BENCHFLAGS ?=
MUTATEFLAGS ?= -write docs/mutations.md -generated 200 -seed 2

# Without the folder's path in it, what is built in one clone is found in the build cache by the next. The tag leaves a
# package out of gRPC that nothing uses, and that makes the program 9 MB larger.
export GOFLAGS := $(strip $(filter-out -trimpath -tags=grpcnotrace,$(shell go env GOFLAGS 2>/dev/null)) -trimpath -tags=grpcnotrace)

# As the release has it: without the v of the tag.
VERSION := $(patsubst v%,%,$(shell git describe --tags --always --dirty 2>/dev/null || echo dev))
LDFLAGS := -X main.version=$(VERSION)
# A compiler that collects garbage less often takes a fifth less CPU, and 2 GB at most. Programs that run do not get this.
COMPILE := env GOGC=$${GOGC:-400}
TOOL := go tool -modfile=internal/tools/go.mod
STEP := @.ci/step
SUB := @$(MAKE) --no-print-directory

.PHONY: help build demo release-snapshot check test ci test-all lint unit race generate schema manifests console baseline api e2e e2e-versions xds demo-smoke \
	clients conformance conformance-smoke connect-conformance sdk sdk-smoke schema-history fuzz chaos chaos-smoke chaos-cluster kills \
	upgrade release-test mutate soak deploy-lint vulncheck bench clean clients-and-smokes

help: ## print this list
	@awk -F ':.*## ' '/^##@ /{printf "\n%s\n",substr($$0,5)} /^[a-z0-9%-]+:.*## /{printf "  %-20s %s\n",$$1,$$2}' $(MAKEFILE_LIST)

##@ To use it
build: ## build bin/copilot-grpc
	$(STEP) build go $(COMPILE) go build -ldflags '$(LDFLAGS)' -o bin/copilot-grpc ./cmd/copilot-grpc

demo: ## show the whole thing: real CLI, server, a tool call, a permission
	@go run -ldflags '$(LDFLAGS)' ./cmd/copilot-grpc demo

release-snapshot: ## what a release publishes, into bin/release: archives, deb, rpm, SBOMs, packages of npm and PyPI
	$(STEP) "release snapshot" go,git,node .ci/release --snapshot --skip=publish,sign,docker

##@ To change it
check: ## format, vet, lint and unit tests, with the time of each: for use before a commit
	@.ci/check

test: build unit-core e2e-core demo-smoke ## that the server works on this machine: unit tests, a core of those with the real CLI, the demo
	@echo "make test: done; a step that was left out says NOT RUN above"

lint: ## formatting, vet, staticcheck, revive, import directions, texts
	$(STEP) lint go,git .ci/lint

generate: ## write gen, the Rust stubs and docs/reference from proto, and deploy/monitoring; the reference of all packages goes to bin/reference
	$(TOOL) buf generate
	$(TOOL) buf generate --template e2e/conformance/buf.gen.yaml e2e/conformance
	$(STEP) "Rust stubs" cargo .ci/rust-stubs
	$(STEP) "reference" go $(TOOL) buf generate --template buf.gen.docs.yaml
	@go test -count=1 -run '^TestBuiltLinks$$' ./internal/gen/apidoc
	.ci/monitoring

schema: ## take in a CLI version (CLI=1.0.103): its schemas, proto, gen, checks, a changelog
	$(STEP) "schema of CLI $(CLI)" go,git,npm .ci/schema $(CLI)

manifests: ## render the Helm chart: deploy/kubernetes*, its golden files and its README
	$(STEP) "manifests" go .ci/chart

console: ## build the browser console into server/console/dist, which the server contains
	$(STEP) "browser console, built" go,node,npm .ci/client-console build

clean: ## remove what was built
	rm -rf bin

##@ To prove it
ci: test unit lint deploy-lint race chaos-smoke api e2e xds e2e-oldest clients-and-smokes conformance-smoke ## what every change must pass
	@echo "make ci: done; a step that was left out says NOT RUN above"

test-all: ci sdk ## ci, and what takes hours: all suites, on both CLIs, through another replica and under the race detector
	$(SUB) client-console PART=all
	$(SUB) conformance
	$(SUB) schema-history
	$(SUB) fuzz FUZZTIME=60s
	$(SUB) e2e-versions
	$(SUB) mutate MUTATEFLAGS='-sample 7 -generated 9'
	$(SUB) e2e CLI=$(CLI_OLDEST)
	$(SUB) kills COUNT=300
	$(SUB) kills COUNT=100 CLI=$(CLI_OLDEST)
	$(SUB) chaos-cluster SEED=100 COUNT=20 REAL=6
	$(SUB) upgrade
	$(SUB) release-test
	$(SUB) e2e PART=entry
	@GOFLAGS="$${GOFLAGS:-} -race" $(MAKE) --no-print-directory e2e

unit: ## unit tests
	$(STEP) "unit tests" go go test -vet=off -timeout 5m $$(go list ./... | grep -vE "^$$(go list -m)/(e2e|gen)(/|$$)")

race: ## unit tests of packages with goroutines or locks, under the race detector
	$(STEP) "race detector" go .ci/race

e2e: ## end-to-end tests with the real CLI (CLI=1.0.81; PART=core, entry, or a file of test names)
	$(STEP) "e2e on CLI $(CLI)$(if $(PART), ($(PART)))" go,npm .ci/e2e $(CLI) $(PART)

xds: ## programs with the tag xds and a control plane: docs/mesh.md
	$(STEP) "xDS" go,npm .ci/xds $(CLI)

api: ## that proto keeps its promises: buf lint, buf breaking, and generating makes no difference
	$(STEP) "generated code" go .ci/check-generated
	$(STEP) "buf lint" go $(TOOL) buf lint
	@$(TOOL) buf lint e2e/conformance
	$(STEP) "buf breaking" go,git .ci/check-breaking

clients: client-typescript client-console client-python client-java client-rust ## the client libraries and the console, or one: client-python (of the console PART=all, shots)

client-typescript client-console client-python client-java client-rust: build
	$(STEP) "$(@:client-%=%)" go,npm,$(needs-$(@:client-%=%)) .ci/$(if $(filter %console,$@),client-console $(or $(PART),check),client $(@:client-%=%)) $(CLI)

conformance: build ## the five client libraries on the same cases, with both CLIs; writes docs/conformance.md
	$(STEP) "conformance of the clients" go,npm .ci/conformance -write docs/conformance.md

sdk: build ## programs of the official SDKs on the CLI and on the shim, everything compared
	$(STEP) "typescript SDK on CLI $(CLI_VERSION)" go,npm .ci/sdk typescript $(CLI_VERSION)
	$(STEP) "python SDK on CLI $(CLI_VERSION)" go,npm .ci/sdk python $(CLI_VERSION)
	$(STEP) "typescript SDK on CLI $(CLI_OLDEST)" go,npm .ci/sdk typescript $(CLI_OLDEST)

fuzz: ## every fuzz target for a few seconds (FUZZTIME)
	$(STEP) "fuzz, $(FUZZTIME) each" go,git .ci/fuzz-smoke $(FUZZTIME)

chaos: ## seeded fault schedules against the whole server (SEED, MINUTES or COUNT, REAL, PARALLEL)
	@mkdir -p bin
	@go build -o bin/chaos ./internal/testing/chaos
	@COPILOT_CLI_PATH=$${COPILOT_CLI_PATH:-$$(.ci/install-cli $(CLI) || true)} \
		bin/chaos -seed $(SEED) -minutes $(MINUTES) -count $(COUNT) -real $(REAL) -parallel $(PARALLEL) -out bin/chaos-summary.txt

chaos-cluster: ## the same against three replicas and three NATS servers (SEED, at least 1; COUNT; REAL)
	$(STEP) "fault schedules of a cluster" go$(if $(filter-out 0,$(REAL)),$(comma)npm) .ci/chaos-cluster \
		$(or $(filter-out 0,$(SEED)),1) $(or $(filter-out 0,$(COUNT)),$(if $(filter-out 0,$(REAL)),0,1)) $(REAL) $(CLI)

kills: ## the server and the real CLI killed after prompts were acknowledged (SEED, COUNT)
	$(STEP) "kills on CLI $(CLI)" go,npm .ci/kills $(CLI) $(COUNT) $(SEED)

upgrade: ## replicas of an earlier build (BASE, default the newest tag or the first build with replicas that drain) are replaced
	$(STEP) "upgrade of a cluster" go,npm .ci/upgrade $(or $(BASE),$(shell git describe --tags --abbrev=0 2>/dev/null || echo 7f3a19b0))

release-test: ## the files of a release of this commit, made twice and installed; what publishing the libraries would take
	$(STEP) "release" go,git,node,npm,dpkg .ci/release-test
	$(STEP) "packages of the libraries" go,npm,python3,cargo,mvn .ci/publish --check

mutate: ## small faults in the source, named and generated, which tests have to notice; writes docs/mutations.md (MUTATEFLAGS)
	$(STEP) "mutations" go go run ./internal/testing/mutate/cmd/mutate $(MUTATEFLAGS)

##@ To measure it
bench: ## the server beside a CLI spoken to directly (BENCHFLAGS); bench-cluster, bench-libraries, bench-compare BASE=COMMIT
	@COPILOT_CLI_PATH=$${COPILOT_CLI_PATH:-$$(.ci/install-cli $(CLI) || true)} \
		go run ./internal/testing/bench/cmd/bench -write docs/performance/figures.md $(BENCHFLAGS)
	@COPILOT_GRPC_RATIOS=1 go test -count=1 -v -run '^(TestIngestAgainstTranslation|TestHistoryCostsNothing|TestFloorOfALargeEvent)$$' ./internal/testing/bench

bench-cluster bench-libraries bench-compare:
	$(STEP) "$@" go,git .ci/bench $(@:bench-%=%) $(BASE) $(BENCHFLAGS)

soak: ## many turns in which nothing breaks (TURNS), and the server's memory over time
	@go run ./internal/testing/bench/cmd/bench -only soak -operations $(TURNS)

# Steps of the targets above.

comma := ,
needs-typescript := node
needs-console := node
needs-python := python3
needs-java := java,javac,mvn
needs-rust := cargo

demo-smoke: build
	$(STEP) "demo" go,npm .ci/demo-smoke $(CLI_VERSION)

# The unit tests of what a user meets. The cluster, generators and test tools are in "unit", which finds these in its cache.
unit-core:
	$(STEP) "unit tests of the server and the Go library" go go test -vet=off -timeout 5m \
		./bridge/... ./server/... ./clients/go/... ./internal/app/... ./internal/shim ./internal/terminal ./internal/testing/sim

e2e-core:
	$(SUB) e2e PART=core

e2e-oldest:
	$(SUB) e2e CLI=$(CLI_OLDEST) PART=e2e/smoke-$(CLI_OLDEST).txt

e2e-versions: # a sample of them with each supported version, into docs/tested-versions.txt
	$(STEP) "e2e sample on each CLI version" go,npm .ci/e2e-versions

schema-history: # the API grew with the CLI without breaking old clients (downloads 13 CLIs once)
	$(STEP) "schema history" go,npm .ci/schema-history $(CLI_VERSION)

deploy-lint: # the Dockerfile, the Helm chart, the manifests, the systemd unit, the dashboard and the alerts
	$(STEP) "deploy" go .ci/deploy-lint
	$(STEP) "monitoring" go .ci/monitoring -check

conformance-smoke: build # with one transport and one CLI, for the libraries that are built
	$(STEP) "conformance smoke" go,npm .ci/conformance smoke

connect-conformance: # the Connect conformance suite against server/web: Connect, gRPC-Web, HTTP/1.1 and HTTP/2
	$(STEP) "Connect conformance suite" go .ci/connect-conformance

sdk-smoke: build
	$(STEP) "SDK smoke" go,npm .ci/sdk smoke $(CLI_VERSION)

# The same seeds every time, and none begins after 45 s on a busy machine: what random seeds find is to be mended, and must
# not hold up whoever changes something else.
chaos-smoke:
	@mkdir -p bin
	@go build -o bin/chaos ./internal/testing/chaos
	$(STEP) "fault schedules" go bin/chaos -seed 1 -count 8 -minutes 0.75 -out bin/chaos-smoke.txt
	$(SUB) chaos-cluster SEED=1 COUNT=2

# Two lists side by side, because most of these steps keep one core busy. The output of the second comes at its end.
clients-and-smokes: build
	@$(MAKE) -k --no-print-directory client-python client-rust sdk-smoke >bin/clients.txt 2>&1 & second=$$!; status=0; \
	$(MAKE) -k --no-print-directory client-typescript client-console client-java fuzz connect-conformance || status=$$?; \
	wait $$second || status=$$?; cat bin/clients.txt; exit $$status

baseline: # write proto/baseline.binpb.gz, the API that buf breaking compares with until there is a release
	$(TOOL) buf build --exclude-source-info -o proto/baseline.binpb.gz

vulncheck: # known vulnerabilities in what the program uses (asks vuln.go.dev)
	$(STEP) "govulncheck" go .ci/vulncheck
