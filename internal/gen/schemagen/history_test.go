package schemagen

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The tests named TestSchemaHistory… need the real schemas: see schemaModels.

// TestSchemaHistoryBreaksNothing rolls an empty ledger through all versions, as it would have grown: each step must
// lint and be wire-compatible with its predecessor.
func TestSchemaHistoryBreaksNothing(t *testing.T) {
	t.Parallel()
	models := schemaModels(t)
	buf := bufCommand(t)
	before, ledger := "", NewLedger()
	for i := range models {
		step, err := Generate(Config{Schemas: models[:i+1], Ledger: ledger, Core: bridgeUses(t)})
		if err != nil {
			t.Fatalf("up to %s: %v", models[i].Versions[0], err)
		}
		dir := workspace(t, step)
		run(t, dir, buf, "lint")
		if before != "" {
			run(t, dir, buf, "breaking", "--against", before)
		}
		t.Logf("%s: %d files, %d messages, %d enums", models[i].Versions[0], len(step.Files), len(step.Plan.Messages),
			len(step.Plan.Enums))
		before = dir
	}
}

// TestSchemaHistoryIsCommitted generates again: the committed ledger and the
// committed files must come out, twice the same.
func TestSchemaHistoryIsCommitted(t *testing.T) {
	t.Parallel()
	models := schemaModels(t)
	ledger, err := ReadLedger("ledger.json")
	if err != nil {
		t.Fatal(err)
	}
	once, err := Roll(models, ledger, bridgeUses(t))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Roll(models, ledger, bridgeUses(t))
	if err != nil {
		t.Fatal(err)
	}
	files := once.Files
	if !maps.Equal(files, again.Files) {
		t.Error("two runs differ")
	}
	root := filepath.Join("..", "..", "..", "proto")
	for name, text := range files {
		if data, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(data) != text {
			t.Errorf("%s is not what the generator writes (%v)", name, err)
		}
	}
	committed, err := filepath.Glob(filepath.Join(root, protoDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(committed) != len(files) {
		t.Errorf("%d files are committed, %d generated", len(committed), len(files))
	}
	path := filepath.Join(t.TempDir(), "ledger.json")
	if err := ledger.Write(path); err != nil {
		t.Fatal(err)
	}
	sameFile(t, path, "ledger.json")
}

func sameFile(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if string(x) != string(y) {
		t.Errorf("%s and %s differ", a, b)
	}
}

// TestSchemaHistoryHasEveryEvent reads the event types straight from the schema
// files and looks for the case of each.
func TestSchemaHistoryHasEveryEvent(t *testing.T) {
	t.Parallel()
	models := schemaModels(t)
	out, err := Generate(Config{Schemas: models, Ledger: NewLedger()})
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]bool{}
	for _, f := range out.Plan.Messages[eventUnion].Fields {
		if f.Case {
			cases[f.Tag] = true
		}
	}
	want := slices.Clone(unlistedEvents)
	for _, p := range pinned(t) {
		types := eventTypesOf(t, filepath.Join(os.Getenv("SCHEMA_DIR"), p.Version, SchemaFiles[1]))
		if len(types) < 130 {
			t.Errorf("%s: found only %d event types", p.Version, len(types))
		}
		want = append(want, types...)
	}
	slices.Sort(want)
	want = slices.Compact(want)
	for _, typ := range want {
		if !cases[typ] {
			t.Errorf("event %q has no case", typ)
		}
	}
	if len(cases) != len(want) {
		t.Errorf("%d cases for %d event types", len(cases), len(want))
	}
	t.Logf("%d event types", len(want))
}

// unlistedEvents are the events seen on the wire that no schema lists, and the events that the CLI has in a separate
// list.
var unlistedEvents = []string{
	"model.model_call_started", "model.message", "model.turn_started", "model.turn_ended", "model.model_call_success",
	"model.messages_snapshot", "model.response", "model.model_call_failure", "model.tool_execution", "model.turn_retry",
	"model.turn_failed", "model.log", "model.compaction_started", "model.compaction_completed", "model.telemetry",
	"model.response_limits_status", "model.compaction_static_context_blocked", "model.binary_attachments_removed",
	"model.image_processing", "model.captured_assignment_context", "model.embedding_retrieval_injection", "model.error",
	"model.history_truncated", "model.usage_info",
	"session.mcp_server_removed",
}

func eventTypesOf(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Definitions map[string]struct {
			AnyOf []struct {
				Ref string `json:"$ref"`
			} `json:"anyOf"`
			Properties struct{ Type struct{ Const string } }
		}
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, alt := range doc.Definitions[eventUnion].AnyOf {
		out = append(out, doc.Definitions[filepath.Base(alt.Ref)].Properties.Type.Const)
	}
	return out
}

// workspace writes a step to a folder that buf can work in.
func workspace(t *testing.T, o *Output) string {
	t.Helper()
	dir := t.TempDir()
	if err := o.Write(filepath.Join(dir, "proto")); err != nil {
		t.Fatal(err)
	}
	copyInto(t, filepath.Join("..", "..", "..", "buf.yaml"), filepath.Join(dir, "buf.yaml"))
	copyInto(t, filepath.Join("..", "..", "..", "proto", optionsFile), filepath.Join(dir, "proto", optionsFile))
	return dir
}

func copyInto(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// bufCommand is buf: the program in BUF, else the tool of this module.
func bufCommand(t *testing.T) []string {
	t.Helper()
	if b := os.Getenv("BUF"); b != "" {
		return []string{b}
	}
	mod, err := filepath.Abs(filepath.Join("..", "..", "tools", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "tool", "-modfile="+mod, "-n", "buf").Output()
	if err != nil {
		t.Fatalf("find buf: %v", err)
	}
	return []string{strings.TrimSpace(string(out))}
}

func run(t *testing.T, dir string, command []string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("buf %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
