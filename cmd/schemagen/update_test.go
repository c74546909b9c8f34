package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSchemaHistoryUpdate takes in a version that does not exist: the newest one with a
// method more. It needs the real schemas.
func TestSchemaHistoryUpdate(t *testing.T) {
	t.Parallel()
	schemas := os.Getenv("SCHEMA_DIR")
	if schemas == "" {
		t.Skip("SCHEMA_DIR is not set: make schema-history sets it")
	}
	dir := t.TempDir()
	cached := filepath.Join(dir, "schemas")
	if err := os.CopyFS(cached, os.DirFS(schemas)); err != nil {
		t.Fatal(err)
	}
	invent(t, filepath.Join(cached, "1.0.102"), filepath.Join(cached, "1.0.9999"))
	to := map[string]string{"-out": "proto", "-ledger": "ledger.json", "-pins": "pins.txt"}
	for _, name := range []string{"ledger.json", "pins.txt"} {
		copyFile(t, filepath.Join("..", "..", "internal", "gen", "schemagen", name), filepath.Join(dir, name))
	}
	args := []string{"update", "-cli", "1.0.9999", "-dir", cached, "-bridge", bridge}
	for flag, name := range to {
		args = append(args, flag, filepath.Join(dir, name))
	}
	for range 2 { // the second time for a version that is pinned
		if err := run(t.Context(), args, &bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"pins.txt":                             "\n1.0.9999 ",
		"ledger.json":                          "HourglassServiceTurnRequest",
		"proto/copilot/cli/v1/hourglass.proto": `method: "hourglass.turn"`,
		"proto/copilot/cli/v1/status.proto":    " 1.0.9999\n",
	} {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s has no %q (%v)", name, want, err)
		}
	}
	var log bytes.Buffer
	if err := run(t.Context(), []string{"changelog", "-dir", cached, "1.0.9999"}, &log); err != nil {
		t.Fatal(err)
	}
	want := "What CLI 1.0.9999 changes over 1.0.102\n\nMethods: 1 added, 0 removed, 0 changed\n  + hourglass.turn\n  " +
		"    (sand: int) -> null\n"
	if !strings.HasPrefix(log.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", log.String(), want)
	}
}

// invent copies a version's schemas with one method more.
func invent(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(to, "api.schema.json")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]json.RawMessage
	var server map[string]json.RawMessage
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(doc["server"], &server); err != nil {
		t.Fatal(err)
	}
	server["hourglass"] = json.RawMessage(`{"turn":{"rpcMethod":"hourglass.turn","result":{"type":"null"},
		"params":{"type":"object","properties":{"sand":{"type":"integer"}},"required":["sand"],"additionalProperties":false}}}`)
	if doc["server"], err = json.Marshal(server); err != nil {
		t.Fatal(err)
	}
	if data, err = json.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
