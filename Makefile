# Every target prints what it does: make help.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# The steps of "test" share two cores and one build cache; their order is their sense.
.NOTPARALLEL:

# The pinned CLI, and the oldest one that is supported.
CLI_VERSION := 1.0.102
CLI_OLDEST := 1.0.81
# The CLI version that schema takes in.
CLI ?= $(CLI_VERSION)
# How long each fuzz target runs in fuzz-smoke.
FUZZTIME ?= 2s
# The first seed of chaos (0 takes the time, and prints it), how long it goes on or how many
# schedules it plays, and how many with the real CLI after those.
SEED ?= 0
MINUTES ?= 0
COUNT ?= 0
REAL ?= 0
# For arguments of functions.
comma := ,
# Schedules at once, and turns of soak.
PARALLEL ?= 4
TURNS ?= 100000
# Flags of the benchmarks, such as "-repeats 9" or "-only ingest,fanout -write ''".
BENCHFLAGS ?=

# Without the folder's path in it, what is built in one clone is found in the build cache by the next. The tag leaves a
# package out of gRPC that nothing uses, and that makes the program 9 MB larger (docs/performance/builds.md, "The binary").
export GOFLAGS := $(strip $(filter-out -trimpath -tags=grpcnotrace,$(shell go env GOFLAGS 2>/dev/null)) -trimpath -tags=grpcnotrace)

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.version=$(VERSION)
TOOL := go tool -modfile=internal/tools/go.mod

.PHONY: help build packages generate docs baseline schema lint test ci test-all clients-and-smokes unit race check-generated proto-lint \
	proto-breaking e2e e2e-core e2e-rest e2e-entry e2e-81 e2e-81-all e2e-versions fuzz-smoke demo demo-smoke \
	clients client-typescript client-console client-console-all console console-shots client-python client-java client-rust conformance conformance-smoke sdk sdk-smoke bench bench-cluster bench-compare bench-libraries schema-history clean man check \
	chaos chaos-smoke chaos-cluster chaos-cluster-smoke kills soak upgrade deploy-lint vulncheck mutate mutate-sample connect-conformance

help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/copilot-grpc
	@.ci/step build go go build -ldflags '$(LDFLAGS)' -o bin/copilot-grpc ./cmd/copilot-grpc

generate: ## write gen and docs/reference from proto
	$(TOOL) buf generate
	$(TOOL) buf generate --template e2e/conformance/buf.gen.yaml e2e/conformance

docs: ## build the reference of all packages in bin/reference
	@.ci/step docs go $(TOOL) buf generate --template buf.gen.docs.yaml
	@go test -count=1 -run '^TestBuiltLinks$$' ./internal/gen/apidoc

schema: ## take in a CLI version (CLI=1.0.103): its schemas, proto, gen, checks, a changelog
	@.ci/step "schema of CLI $(CLI)" go,git,npm .ci/schema $(CLI)

packages: ## the program for each platform as packages of npm and PyPI, into bin/packages (VERSION=0.1.0)
	@.ci/step "packages" go .ci/packages $(VERSION)

man: ## write the manual pages into bin/man
	@.ci/step "manual pages" go go run ./cmd/manpages -out bin/man

lint: ## formatting, vet, staticcheck, revive, import directions, texts
	@.ci/step lint go,git .ci/lint

test: build unit e2e-core demo-smoke ## that the server works on this machine: unit tests, sessions and callbacks with the real CLI, the demo
	@echo "make test: done; a step that was left out says NOT RUN above"

ci: test lint deploy-lint race chaos-smoke chaos-cluster-smoke check-generated proto-lint proto-breaking e2e-rest e2e-81 clients-and-smokes conformance-smoke ## what every change must pass: test, lint, the race detector, the other e2e tests, the oldest CLI, the libraries, faults
	@echo "make ci: done; a step that was left out says NOT RUN above"

# Two lists side by side, because most of these steps keep one core busy. The output of the second comes at its end.
clients-and-smokes: build
	@$(MAKE) -k --no-print-directory client-python client-rust sdk-smoke >bin/clients.txt 2>&1 & second=$$!; status=0; \
	$(MAKE) -k --no-print-directory client-typescript client-console client-java fuzz-smoke connect-conformance || status=$$?; \
	wait $$second || status=$$?; cat bin/clients.txt; exit $$status

test-all: ci sdk ## ci, and what takes longer: the SDKs' scenarios, the console in a browser, the whole conformance suite, schema history, a minute per fuzz target, a sample of e2e on each CLI version, all of it on the oldest, e2e with -race
	@$(MAKE) --no-print-directory client-console-all
	@$(MAKE) --no-print-directory conformance
	@.ci/step "schema history" go,npm .ci/schema-history $(CLI_VERSION)
	@.ci/step "long fuzzing" go,git .ci/fuzz-smoke 60s
	@$(MAKE) --no-print-directory e2e-versions
	@$(MAKE) --no-print-directory mutate-sample
	@$(MAKE) --no-print-directory e2e-81-all
	@$(MAKE) --no-print-directory kills COUNT=300
	@$(MAKE) --no-print-directory chaos-cluster SEED=100 COUNT=20 REAL=6
	@$(MAKE) --no-print-directory upgrade
	@$(MAKE) --no-print-directory e2e-entry
	@.ci/step "e2e under the race detector" go,npm env GOFLAGS="$${GOFLAGS:-} -race" E2E_TIMEOUT=20m .ci/e2e $(CLI_VERSION)

deploy-lint: ## the Dockerfile, the manifests, the systemd unit
	@.ci/step "deploy" go .ci/deploy-lint

connect-conformance: ## the Connect conformance suite against server/web: Connect, gRPC-Web, HTTP/1.1 and HTTP/2
	@.ci/step "Connect conformance suite" go .ci/connect-conformance

upgrade: ## replicas of an earlier build (BASE, default the newest tag or the first build with replicas that drain) are replaced by this one
	@.ci/step "upgrade of a cluster" go,npm .ci/upgrade $(or $(BASE),$(shell git describe --tags --abbrev=0 2>/dev/null || echo 7f3a19b0))

vulncheck: ## known vulnerabilities in what the program uses (asks vuln.go.dev)
	@.ci/step "govulncheck" go .ci/vulncheck

check: ## format, vet, lint and unit tests, with the time of each: for use before a commit
	@.ci/check

unit: ## unit tests
	@.ci/step "unit tests" go .ci/unit

race: ## unit tests of packages with goroutines or locks, under the race detector
	@.ci/step "race detector" go .ci/race

check-generated: ## generating makes no difference
	@.ci/step "generated code" go .ci/check-generated

proto-lint: ## buf lint
	@.ci/step "buf lint" go $(TOOL) buf lint
	@$(TOOL) buf lint e2e/conformance

baseline: ## write proto/baseline.binpb.gz, the API that proto-breaking compares with until there is a release
	$(TOOL) buf build --exclude-source-info -o proto/baseline.binpb.gz

proto-breaking: ## buf breaking against the last release, or else the baseline
	@.ci/step "buf breaking" go,git .ci/check-breaking

e2e: ## end-to-end tests with the pinned real CLI
	@.ci/step "e2e on CLI $(CLI_VERSION)" go,npm .ci/e2e $(CLI_VERSION)

e2e-core: ## those of sessions and callbacks
	@.ci/step "e2e of sessions and callbacks on CLI $(CLI_VERSION)" go,npm env E2E_PACKAGES='./e2e/session ./e2e/callback' .ci/e2e $(CLI_VERSION)

e2e-rest: ## all others
	@.ci/step "other e2e on CLI $(CLI_VERSION)" go,npm env E2E_PACKAGES="$$(go list ./e2e/... | grep -vE '/e2e/(session|callback)$$' | paste -sd ' ')" .ci/e2e $(CLI_VERSION)

e2e-entry: ## those of sessions, callbacks and the CLI's methods, through a replica that does not have the sessions
	@.ci/step "e2e through another replica" go,npm env E2E_ENTRY=1 E2E_PACKAGES='./e2e/session ./e2e/callback ./e2e/surface' .ci/e2e $(CLI_VERSION)

e2e-81: ## the tests that depend on the CLI version, with the oldest supported CLI
	@.ci/step "e2e sample on CLI $(CLI_OLDEST)" go,npm .ci/e2e $(CLI_OLDEST) e2e/smoke-$(CLI_OLDEST).txt

e2e-versions: ## a sample of them with each supported version, into docs/tested-versions.txt
	@.ci/step "e2e sample on each CLI version" go,npm .ci/e2e-versions

e2e-81-all: ## all of them with the oldest supported CLI
	@.ci/step "e2e on CLI $(CLI_OLDEST)" go,npm env E2E_TIMEOUT=15m .ci/e2e $(CLI_OLDEST)

clients: client-typescript client-console client-python client-java client-rust ## the clients that are not Go: stubs, types, examples on the real CLI

client-typescript: build ## the TypeScript one alone
	@.ci/step "TypeScript client" go,node,npm .ci/client typescript $(CLI_VERSION)

client-console: build ## the browser console: types, tests, main journeys, and that the built files are those of the sources
	@.ci/step "browser console" go,node,npm .ci/client-console check $(CLI_VERSION)

client-console-all: build ## all its tests in a browser
	@.ci/step "browser console, all journeys" go,node,npm .ci/client-console all $(CLI_VERSION)

console-shots: build ## the pictures in docs/console
	@.ci/step "pictures of the console" go,node,npm .ci/client-console shots $(CLI_VERSION)

console: ## builds the browser console into server/console/dist, which the server contains
	@.ci/step "browser console, built" go,node,npm .ci/client-console build

client-python: build ## the Python one alone
	@.ci/step "Python client" go,npm,python3 .ci/client python $(CLI_VERSION)

client-rust: build ## the Rust one alone
	@.ci/step "Rust client" go,npm,cargo .ci/client-rust $(CLI_VERSION)

client-java: build ## the Java one alone
	@.ci/step "Java client" go,npm,java,javac,mvn .ci/client java $(CLI_VERSION)

conformance: build ## the five client libraries on the same cases, with both CLI versions; writes the table of docs/conformance.md
	@.ci/step "conformance of the clients" go,npm .ci/conformance -write docs/conformance.md

conformance-smoke: build ## the same, with one transport and one CLI, for the libraries that are built
	@.ci/step "conformance smoke" go,npm .ci/conformance smoke

# Not the SDK for Python on the oldest CLI: it waits for the end of a turn in vain there, shim or not.
sdk: build ## programs of the official SDKs on the CLI and on the shim, everything compared: TypeScript on both CLI versions, Python on the pinned one
	@.ci/step "typescript SDK on CLI $(CLI_VERSION)" go,npm .ci/sdk typescript $(CLI_VERSION)
	@.ci/step "python SDK on CLI $(CLI_VERSION)" go,npm .ci/sdk python $(CLI_VERSION)
	@.ci/step "typescript SDK on CLI $(CLI_OLDEST)" go,npm .ci/sdk typescript $(CLI_OLDEST)

sdk-smoke: build ## a few of them
	@.ci/step "SDK smoke" go,npm .ci/sdk smoke $(CLI_VERSION)

fuzz-smoke: ## every fuzz target for a few seconds (FUZZTIME)
	@.ci/step "fuzz smokes" go,git .ci/fuzz-smoke $(FUZZTIME)

demo: ## show the whole thing: real CLI, bridge, a tool call, a permission
	@go run -ldflags '$(LDFLAGS)' ./cmd/copilot-grpc demo

demo-smoke: build ## the demo, as a check
	@.ci/step "demo" go,npm .ci/demo-smoke $(CLI_VERSION)

bench: ## measure the bridge beside a CLI spoken to directly, into docs/performance (BENCHFLAGS)
	@COPILOT_CLI_PATH=$${COPILOT_CLI_PATH:-$$(.ci/install-cli $(CLI_VERSION) || true)} \
		go run ./internal/testing/bench/cmd/bench -write docs/performance/figures.md $(BENCHFLAGS)
	@COPILOT_GRPC_RATIOS=1 go test -count=1 -v -run '^(TestIngestAgainstTranslation|TestHistoryCostsNothing|TestFloorOfALargeEvent)$$' ./bridge

bench-cluster: ## what a cluster does at growing numbers of sessions (SESSIONS, default 10,000), in about 10 minutes
	@.ci/step "measurements of a cluster" go .ci/bench-cluster $(or $(SESSIONS),10000)

bench-libraries: ## what each client library costs beside its bare stubs, into docs/performance (BENCHFLAGS)
	@.ci/step "client libraries beside their stubs" go .ci/bench-libraries -write docs/performance/libraries.md $(BENCHFLAGS)

bench-compare: ## what this folder changes against a commit (BASE), with 95 % intervals, in about 5 minutes
	@.ci/step "comparison with $(BASE)" go,git .ci/bench-compare "$(BASE)" $(BENCHFLAGS)

schema-history: ## the API grew with the CLI without breaking old clients (downloads 13 CLIs once)
	@.ci/step "schema history" go,npm .ci/schema-history $(CLI_VERSION)

chaos: ## seeded fault schedules against the whole server (SEED, MINUTES or COUNT, REAL, PARALLEL)
	@mkdir -p bin
	@go build -o bin/chaos ./internal/testing/chaos/cmd/chaos
	@COPILOT_CLI_PATH=$${COPILOT_CLI_PATH:-$$(.ci/install-cli $(CLI_VERSION) || true)} \
		bin/chaos -seed $(SEED) -minutes $(MINUTES) -count $(COUNT) -real $(REAL) -parallel $(PARALLEL) -out bin/chaos-summary.txt

chaos-smoke: ## the first of them: the same 12 seeds each time
	@.ci/step "fault schedules" go .ci/chaos-smoke

chaos-cluster: ## seeded fault schedules against three replicas and three NATS servers (SEED, at least 1; COUNT; REAL)
	@.ci/step "fault schedules of a cluster" go$(if $(filter-out 0,$(REAL)),$(comma)npm) .ci/chaos-cluster \
		$(or $(filter-out 0,$(SEED)),1) $(or $(filter-out 0,$(COUNT)),$(if $(filter-out 0,$(REAL)),0,1)) $(REAL) $(CLI_VERSION)

chaos-cluster-smoke: ## the first two of them
	@$(MAKE) --no-print-directory chaos-cluster SEED=1 COUNT=2

kills: ## the server and the real CLI killed after prompts were acknowledged (SEED, COUNT; a third of them on the oldest CLI)
	@.ci/step "kills on CLI $(CLI_VERSION)" go,npm .ci/kills $(CLI_VERSION) $(COUNT) $(SEED)
	@.ci/step "kills on CLI $(CLI_OLDEST)" go,npm .ci/kills $(CLI_OLDEST) $$(( ($(COUNT) + 2) / 3 )) $(SEED)

mutate: ## small faults in the source, one at a time, each of which a named test has to notice; the result goes into docs/mutations.md (MUTATEFLAGS)
	@.ci/step "mutations" go go run ./internal/testing/mutate/cmd/mutate $(or $(MUTATEFLAGS),-write docs/mutations.md)

mutate-sample: ## every seventh of them
	@.ci/step "sample of mutations" go go run ./internal/testing/mutate/cmd/mutate -sample 7

soak: ## many turns in which nothing breaks (TURNS), and the server's memory over time
	@mkdir -p bin
	@go build -o bin/chaos ./internal/testing/chaos/cmd/chaos
	@bin/chaos -soak $(TURNS) -out bin/soak-summary.txt

clean: ## remove what was built
	rm -rf bin
