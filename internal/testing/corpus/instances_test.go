package corpus_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/corpus"
)

// TestSchemaHistoryRoundTrips makes up traffic of every supported version: for each
// method, callback and event of its raw schemas, values with all members and with the
// required ones only, and with every alternative and every value of an enum. All of it
// must survive, and all of it must be typed. The generator of the protos has no part in
// how the values are made. SCHEMA_DIR is set by make schema-history.
func TestSchemaHistoryRoundTrips(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("SCHEMA_DIR")
	if dir == "" {
		t.Skip("NOT RUN: SCHEMA_DIR is not set: make schema-history sets it")
	}
	versions, err := filepath.Glob(filepath.Join(dir, "1.*"))
	if err != nil || len(versions) < 13 {
		t.Fatalf("schemas below %s: %q (%v)", dir, versions, err)
	}
	for _, folder := range versions {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			v := readSchemas(t, folder)
			traffic := t.TempDir()
			v.record(t, traffic)
			report, err := corpus.Replay(traffic)
			if err != nil {
				t.Fatal(err)
			}
			for _, failure := range report.Failures {
				t.Errorf("does not survive: %s", failure)
			}
			for place, n := range report.Drift {
				if untyped[place.String()] == "" {
					t.Errorf("not typed: %s (%d times)", place, n)
				}
			}
			if report.Values["params"] < 1000 || report.Values["results"] < 1000 || report.Values["events"] < 500 {
				t.Errorf("only %v values", report.Values)
			}
			t.Logf("%v values of %d types", report.Values, len(report.Types))
		})
	}
}

// untyped are the places where an exact value stands in the catch-all, with the reason.
var untyped = map[string]string{
	"CopilotUserResponse.organization_list: misfit": "a null among the elements of a list",
	"CopilotUserResponse.enterprise_list: misfit":   "a null among the elements of a list",
	"ProtocolSystemMessageAppendConfig.mode: misfit": "chosen by its members' names: the values of an enum do " +
		"not count",
	"UIElicitationArrayEnumFieldItems.anyOf: undeclared": "told from UIElicitationArrayAnyOfField by the members of " +
		"a member only",
	"UIElicitationArrayEnumFieldItems.enum: absent": "the same",
	"UIElicitationArrayEnumFieldItems.type: absent": "the same",
}

// opaque are methods whose schema leaves out what the API describes.
var opaque = map[string]bool{"hooks.invoke": true}

// rawSchemas are the schema files of one version.
type rawSchemas struct {
	definitions map[string]map[string]any
	methods     []rawMethod
	events      []any
	visits      map[string]int // how often a place with a choice was passed
}

type rawMethod struct {
	name           string
	callback       bool
	notification   bool
	params, result any
}

func readSchemas(t *testing.T, dir string) *rawSchemas {
	t.Helper()
	v := &rawSchemas{definitions: map[string]map[string]any{}, visits: map[string]int{}}
	for _, file := range []string{"api.schema.json", "session-events.schema.json"} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		for name, d := range doc["definitions"].(map[string]any) {
			v.definitions[name] = d.(map[string]any)
		}
		for root, callback := range map[string]bool{"server": false, "session": false, "clientSession": true,
			"clientGlobal": true} {
			v.collect(doc[root], callback)
		}
	}
	v.events = v.definitions["SessionEvent"]["anyOf"].([]any)
	slices.SortFunc(v.methods, func(a, b rawMethod) int { return strings.Compare(a.name, b.name) })
	return v
}

func (v *rawSchemas) collect(node any, callback bool) {
	tree, _ := node.(map[string]any)
	if name, ok := tree["rpcMethod"].(string); ok {
		notification, _ := tree["notification"].(bool)
		v.methods = append(v.methods, rawMethod{name, callback, notification, tree["params"], tree["result"]})
		return
	}
	for _, child := range tree {
		v.collect(child, callback)
	}
}

// rounds is how many values are made of each type: enough for the largest union, as each
// place of choice goes on where it was last.
const rounds = 12

// record writes traffic as the end-to-end tests record it.
func (v *rawSchemas) record(t *testing.T, dir string) {
	t.Helper()
	var to, from strings.Builder
	frame := func(b *strings.Builder, message map[string]any) {
		message["jsonrpc"] = "2.0"
		body, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	id := 0
	for _, m := range v.methods {
		if opaque[m.name] {
			continue
		}
		ask, answer := &to, &from
		if m.callback {
			ask, answer = &from, &to
		}
		for round := range rounds {
			request := map[string]any{"method": m.name}
			if m.params != nil {
				request["params"] = v.value(m.name+"?", m.params, round, 0)
				if request["params"] == absent {
					delete(request, "params")
				}
			}
			if !m.notification {
				id++
				request["id"] = fmt.Sprint(id)
				result := v.value(m.name+"!", m.result, round, 0)
				if result == absent {
					result = nil
				}
				frame(answer, map[string]any{"id": fmt.Sprint(id), "result": result})
			}
			frame(ask, request)
		}
	}
	for i, e := range v.events {
		for round := range rounds {
			frame(&from, map[string]any{"method": "session.event", "params": map[string]any{
				"sessionId": "s", "event": v.value(fmt.Sprint("event ", i), e, round, 0),
			}})
		}
	}
	writeRecording(t, dir, to.String(), from.String())
}

// absent stands for TypeScript's undefined.
var absent = &struct{ error }{errors.New("absent")}

// value makes a value that a schema allows.
func (v *rawSchemas) value(place string, schema any, round, depth int) any {
	s, ok := schema.(map[string]any)
	if !ok || s == nil {
		if schema == nil && strings.HasSuffix(place, "!") {
			return nil
		}
		return map[string]any{"any": round}
	}
	if ref, ok := s["$ref"].(string); ok {
		name := ref[strings.LastIndexByte(ref, '/')+1:]
		return v.value(name, v.definitions[name], round, depth+1)
	}
	if c, ok := s["const"]; ok {
		return c
	}
	for _, key := range []string{"enum", "x-extensible-enum"} {
		if values, ok := s[key].([]any); ok {
			return values[v.next(place, len(values))]
		}
	}
	if alternatives, ok := s["anyOf"].([]any); ok && s["properties"] == nil {
		i := v.next(place, len(alternatives))
		if not, ok := alternatives[i].(map[string]any)["not"].(map[string]any); ok && len(not) == 0 {
			return absent
		}
		return v.value(fmt.Sprint(place, "|", i), alternatives[i], round, depth)
	}
	typ, ok := s["type"].(string)
	if many, isList := s["type"].([]any); isList {
		typ, ok = many[v.next(place, len(many))].(string)
	}
	if s["properties"] != nil {
		typ, ok = "object", true
	}
	if !ok {
		return []any{map[string]any{"any": round}, "text", 1.5, nil, []any{true}}[round%5]
	}
	return v.typed(place, typ, s, round, depth)
}

func (v *rawSchemas) next(place string, of int) int {
	v.visits[place]++
	return (v.visits[place] - 1) % of
}

func (v *rawSchemas) typed(place, typ string, s map[string]any, round, depth int) any {
	switch typ {
	case "null":
		return nil
	case "boolean":
		return v.next(place, 2) == 0
	case "integer":
		return []int{0, 1, 7_000_000_000, -3}[round%4]
	case "number":
		return []float64{0, 1.5, 1e9, -0.25}[round%4]
	case "string":
		switch {
		case s["format"] == "date-time":
			return "2026-01-02T03:04:05.678Z"
		case s["contentEncoding"] == "base64":
			return "AAEC/w=="
		}
		return []string{"", "text", "Zeile\n2", "\U0001F600"}[round%4]
	case "array":
		list := []any{}
		for i := range 1 + round%2 {
			list = append(list, v.value(place+"[]", s["items"], round+i, depth+1))
		}
		return list
	}
	return v.object(place, s, round, depth)
}

func (v *rawSchemas) object(place string, s map[string]any, round, depth int) any {
	out := map[string]any{}
	properties, _ := s["properties"].(map[string]any)
	if len(properties) == 0 && s["additionalProperties"] != false {
		var elem any
		if e, ok := s["additionalProperties"].(map[string]any); ok {
			elem = e
		}
		out["key"] = v.value(place+"{}", elem, round, depth+1)
		return out
	}
	required, _ := s["required"].([]any)
	names := make([]string, 0, len(properties))
	for name := range properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		p, _ := properties[name].(map[string]any)
		if p["x-opaque-in-process"] == true {
			continue
		}
		must := slices.Contains(required, any(name))
		if !must && (depth > 8 || round%3 == 1 || round%3 == 2 && i%2 == 0) {
			continue
		}
		if member := v.value(place+"."+name, properties[name], round, depth+1); member != absent {
			out[name] = member
		}
	}
	return out
}

// writeRecording writes what went either way to where Replay looks for it.
func writeRecording(t *testing.T, dir, to, from string) {
	t.Helper()
	for name, text := range map[string]string{"made.to": to, "made.from": from} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
