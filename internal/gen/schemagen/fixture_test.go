package schemagen

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// modelOf makes the model of one version from definitions and session methods,
// both as JSON members.
func modelOf(t *testing.T, version, defs, methods string) *Model {
	t.Helper()
	api := fmt.Sprintf(`{"definitions":{%s},"session":{%s}}`, defs, methods)
	events := `{"definitions":{
		"SessionEvent":{"anyOf":[{"$ref":"#/definitions/IdleEvent"},{"$ref":"#/definitions/NoteEvent"}]},
		"IdleEvent":{"type":"object","additionalProperties":false,"required":["type","id","timestamp","parentId","data"],"properties":{
			"type":{"const":"session.idle"},"id":{"type":"string"},"timestamp":{"type":"string","format":"date-time"},
			"parentId":{"type":["string","null"]},"data":{"$ref":"#/definitions/IdleData"}}},
		"NoteEvent":{"type":"object","additionalProperties":false,"properties":{
			"type":{"const":"note"},"data":{"$ref":"#/definitions/NoteData"}}},
		"IdleData":{"type":"object","properties":{},"additionalProperties":false},
		"NoteData":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}}}`
	m, err := parseSchemas(version, [2][]byte{[]byte(api), []byte(events)}, [2]string{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// planOf plans the union of models without overlay, numbered by the ledger.
func planOf(t *testing.T, l *Ledger, models ...*Model) *Plan {
	t.Helper()
	m, err := Merge(models)
	if err != nil {
		t.Fatal(err)
	}
	pl, _, err := newPlan(m)
	if err != nil {
		t.Fatal(err)
	}
	pl.assignFiles(l.growCore(pl, nil))
	l.number(pl)
	return pl
}

// method is a session method with an object of parameters.
func method(name, props, result string) string {
	return fmt.Sprintf(`%q:{"rpcMethod":"session.%s","params":{"type":"object","properties":{%s},"additionalProperties":false},"result":%s}`,
		name, name, props, result)
}

func fieldNamed(t *testing.T, m *Message, name string) *Field {
	t.Helper()
	for _, f := range m.Fields {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("message %s has no field %q", m.Name, name)
	return nil
}

// schemaModels loads the pinned schemas from SCHEMA_DIR, where `schemagen fetch
// -dir` puts them. They cannot be committed.
func schemaModels(t *testing.T) []*Model {
	t.Helper()
	dir := os.Getenv("SCHEMA_DIR")
	if dir == "" {
		t.Skip("SCHEMA_DIR is not set: run `go run ./cmd/schemagen fetch -dir DIR` and set it to DIR")
	}
	var models []*Model
	pins := pinned(t)
	for _, p := range pins {
		m, err := Load(filepath.Join(dir, p.Version), p.Version, pins)
		if err != nil {
			t.Fatal(err)
		}
		models = append(models, m)
	}
	return models
}

func pinned(t *testing.T) Pins {
	t.Helper()
	pins, err := Pinned()
	if err != nil {
		t.Fatal(err)
	}
	return pins
}

// bridgeUses are the roots of the core.
func bridgeUses(t *testing.T) []string {
	t.Helper()
	core, err := BridgeUses(filepath.Join("..", "..", "..", "proto", "copilot", "bridge", "v1"))
	if err != nil {
		t.Fatal(err)
	}
	return core
}
