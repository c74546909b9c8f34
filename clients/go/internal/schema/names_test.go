package schema

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

type embedded struct{ BaseURL string }

// own decodes itself, from the names of its fields.
type own struct{ City string }

func (o *own) UnmarshalJSON(text []byte) error {
	var fields map[string]string
	err := json.Unmarshal(text, &fields)
	o.City = fields["City"]
	return err
}

type untagged struct {
	City    string
	MaxDays int `json:",omitempty"`
	ID      string
	HTTPGet []struct{ Deep bool }
	ByName  map[string]*struct{ Far int }
	Named   string `json:"Named"`
	At      time.Time
	Own     own
	Size    int    `json:"Size"`
	Taken   string // the next field has its name
	Other   string `json:"taken"`
	embedded
}

// Fields without a name in a tag have JSON's names in the schema, and arguments with these names are decoded.
func TestFieldsWithoutTagsHaveNames(t *testing.T) {
	t.Parallel()
	def := &cliv1.ToolDefinition{}
	check, err := Check[untagged](def)
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties map[string]any
		Required   []string
	}
	if err := json.Unmarshal([]byte(def.GetParametersJson()), &schema); err != nil {
		t.Fatal(err)
	}
	names := []string{
		"city", "id", "httpGet", "byName", "Named", "at", "own", "Size", "Taken", "taken", "baseURL",
	}
	if !slices.Equal(schema.Required, names) {
		t.Errorf("required %q, want %q", schema.Required, names)
	}
	if _, exists := schema.Properties["maxDays"]; !exists || len(schema.Properties) != len(names)+1 {
		t.Errorf("properties %v", schema.Properties)
	}
	raw := `{"city":"Oslo","maxDays":3,"id":"7","httpGet":[{"deep":true}],"byName":{"a":{"far":2}},"Named":"n",
		"at":"2026-01-02T03:04:05Z","own":{"City":"Bergen"},"Size":4,"Taken":"t","taken":"o","baseURL":"u"}`
	var got untagged
	if err := check(json.RawMessage(raw), &got); err != nil {
		t.Fatal(err)
	}
	want := untagged{
		City: "Oslo", MaxDays: 3, ID: "7", HTTPGet: []struct{ Deep bool }{{true}},
		ByName: map[string]*struct{ Far int }{"a": {2}}, Named: "n",
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Own: own{"Bergen"}, Size: 4, Taken: "t", Other: "o",
		embedded: embedded{"u"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("decoded %+v", got)
	}
	if err := check(json.RawMessage(`{"City":"Oslo"}`), &got); err == nil {
		t.Error("a name that the schema does not have is accepted")
	}
}
