package sdk

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// masks are what differs from one run to the next, by nature.
var masks = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<id>"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?`), "<time>"},
	{regexp.MustCompile(`\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT`), "<time>"},
	{regexp.MustCompile(`\b(127\.0\.0\.1|localhost):\d+`), "<address>"},
	{regexp.MustCompile(`\bconnection:\d+`), "connection:<n>"},
	// The model's answers have a number, which goes on when the CLI tries again.
	{regexp.MustCompile(`\boffline-\d+`), "offline-<n>"},
	{regexp.MustCompile(`\bcall_\d+_`), "call_<n>_"},
	// Where the CLI is unpacked: by the CLI, or by copilot-grpc before its first start.
	{regexp.MustCompile(`<user>/\.cache/copilot(-grpc)?/pkg/`), "<unpacked>/"},
}

// parseRecord reads a record, with places replaced by their names and the rest masked.
func parseRecord(line []byte, places map[string]string) (any, error) {
	var record any
	if err := json.Unmarshal(line, &record); err != nil {
		return nil, fmt.Errorf("a record that is not JSON: %w in %q", err, line)
	}
	// The longest first: a folder may be in another.
	names := slices.SortedFunc(maps.Keys(places), func(a, b string) int { return len(b) - len(a) })
	return masked(record, func(text string) string {
		for _, place := range names {
			text = strings.ReplaceAll(text, place, "<"+places[place]+">")
		}
		for _, m := range masks {
			text = m.pattern.ReplaceAllString(text, m.with)
		}
		return text
	}), nil
}

// masked applies a function to every text in a value, names of members included.
func masked(value any, mask func(string) string) any {
	switch value := value.(type) {
	case string:
		return mask(value)
	case []any:
		for i := range value {
			value[i] = masked(value[i], mask)
		}
	case map[string]any:
		for _, name := range slices.Collect(maps.Keys(value)) {
			member := value[name]
			delete(value, name)
			value[mask(name)] = masked(member, mask)
		}
	}
	return value
}

// differences lists where two values differ, by path.
func differences(path string, a, b any) []string {
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			return memberDifferences(path, a, b)
		}
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) {
			var found []string
			for i := range a {
				found = append(found, differences(fmt.Sprintf("%s[%d]", path, i), a[i], b[i])...)
			}
			return found
		}
	}
	if reflect.DeepEqual(a, b) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %s | %s", path, compact(a), compact(b))}
}

func memberDifferences(path string, a, b map[string]any) []string {
	var found []string
	names := maps.Clone(a)
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		one, inA := a[name]
		other, inB := b[name]
		switch {
		case !inA:
			found = append(found, at+": missing | "+compact(other))
		case !inB:
			found = append(found, at+": "+compact(one)+" | missing")
		default:
			found = append(found, differences(at, one, other)...)
		}
	}
	return found
}

func compact(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it came from JSON
	}
	const enough = 1500
	if len(text) > enough {
		return string(text[:enough]) + "…"
	}
	return string(text)
}

func TestRecordsAreMasked(t *testing.T) {
	t.Parallel()
	line := `{"id":"0f8fad5b-d9cb-469f-a165-70867728950e","at":"2026-11-21T06:00:00.123Z","in":"/tmp/x/work/project","url":"http://127.0.0.1:4711/v1","kept":[1,"two",null]}`
	got, err := parseRecord([]byte(line), map[string]string{"/tmp/x": "user", "/tmp/x/work": "work"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"id": "<id>", "at": "<time>", "in": "<work>/project", "url": "http://<address>/v1",
		"kept": []any{1.0, "two", nil}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("masked record is %v, want %v", got, want)
	}
}

func TestDifferencesAreFound(t *testing.T) {
	t.Parallel()
	a := map[string]any{"same": []any{"x"}, "list": []any{"x", map[string]any{"y": 1.0}}, "shorter": []any{"x"},
		"gone": nil}
	b := map[string]any{"same": []any{"x"}, "list": []any{"x", map[string]any{"y": 2.0}}, "shorter": []any{},
		"new": true}
	got := differences("", a, b)
	want := []string{`gone: null | missing`, `list[1].y: 1 | 2`, `new: missing | true`, `shorter: ["x"] | []`}
	if !slices.Equal(got, want) {
		t.Errorf("differences are %q, want %q", got, want)
	}
}
