package surface

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// TestSurfaceChecker: TestSurface finds nothing because there is nothing, and not because
// it cannot. Each schema differs from the message in one thing.
func TestSurfaceChecker(t *testing.T) {
	t.Parallel()
	provider := (*cliv1.ProviderConfig)(nil).ProtoReflect().Descriptor()
	tool := (*cliv1.ToolDefinition)(nil).ProtoReflect().Descriptor()
	event := (*cliv1.SessionEvent)(nil).ProtoReflect().Descriptor()
	for _, tc := range []struct {
		name, schema string
		message      protoreflect.MessageDescriptor
		want         string
	}{
		{"as it is",
			`{"type":"object","properties":{"type":{"enum":["openai","azure"]},"baseUrl":{"type":"string"},"headers":{"type":"object","additionalProperties":{"type":"string"}}}}`, provider, ""},
		{"a member more", `{"type":"object","properties":{"colour":{"type":"string"}}}`, provider, "neither a field"},
		{"another type", `{"type":"object","properties":{"baseUrl":{"type":"integer"}}}`, provider, "integer"},
		{"a value more", `{"type":"object","properties":{"type":{"enum":["openai","other"]}}}`, provider,
			`no value "other"`},
		{"an array", `{"type":"object","properties":{"baseUrl":{"type":"array","items":{"type":"string"}}}}`, provider,
			"an array in"},
		{"a dictionary",
			`{"type":"object","properties":{"baseUrl":{"type":"object","additionalProperties":{"type":"string"}}}}`,
			provider, "a dictionary in"},
		{"of something else",
			`{"type":"object","properties":{"headers":{"type":"object","additionalProperties":{"type":"boolean"}}}}`,
			provider, "boolean"},
		{"an alternative more",
			`{"type":"object","properties":{"baseUrl":{"anyOf":[{"type":"string"},{"type":"boolean"}]}}}`, provider,
			"boolean"},
		{"a known inside",
			`{"type":"object","properties":{"parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}`,
			tool, "JSON text"},
		{"an unknown inside", `{"type":"object","properties":{"parameters":{"type":"object","properties":{}}}}`, tool,
			""},
		{"no object", `{"type":"string"}`, provider, "in the object"},
		{"an event more",
			`{"anyOf":[{"properties":{"type":{"const":"session.idle"},"data":{}}},{"properties":{"type":{"const":"sun.rises"},"data":{}}}]}`, event, `"sun.rises"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var node map[string]any
			if err := json.Unmarshal([]byte(tc.schema), &node); err != nil {
				t.Fatal(err)
			}
			c := &checker{cli: &surface{}, seen: map[string]bool{}, findings: map[string]bool{}}
			c.value("it", node, slot{message: tc.message})
			found := strings.Join(c.told(), "; ")
			if tc.want == "" && found != "" || tc.want != "" && !strings.Contains(found, tc.want) {
				t.Errorf("got %q, want %q", found, tc.want)
			}
		})
	}
}
