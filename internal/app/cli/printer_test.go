package cli

import (
	"bytes"
	"encoding/json"
	"testing"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

func TestTableFits(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{
		0:  "ID  TITLE            WHERE\na1  a rather long␛t  /somewhere\n",
		24: "ID  TITLE      WHERE\na1  a rather…  /somewhe…\n",
		10: "ID  TITLE…\na1  a rat…\n",
	} {
		list := table{columns: []column{{head: "ID"}, {head: "TITLE", least: 8}, {head: "WHERE", least: 8}}}
		list.add(nil, "a1", "a rather long\x1bt", "/somewhere")
		list.fit(width)
		got := list.line(list.heads(), width)
		for _, row := range list.rows {
			got += list.line(row, width)
		}
		if got != want {
			t.Errorf("%d columns: got\n%swant\n%s", width, got, want)
		}
	}
}

// JSON has every character, and none that a terminal acts on.
func TestJSONIsHarmless(t *testing.T) {
	t.Parallel()
	title := "a\u202eb\u009b31m\x7f\x1b\u2028 é"
	text, err := jsonText([]any{&bridgev1.Session{Name: title}, map[string]string{"name": title},
		map[string]string{"name": "<&>"}})
	if err != nil || terminal.Clean(string(text)) != string(text) {
		t.Fatalf("%q, %v", text, err)
	}
	if !bytes.Contains(text, []byte("<&>")) {
		t.Errorf("%q has no plain <&>", text)
	}
	var back []struct{ Name string }
	if err := json.Unmarshal(text, &back); err != nil || len(back) != 3 || back[0].Name != title || back[1].Name != title {
		t.Errorf("%q: %+v, %v", text, back, err)
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &printer{out: &output{w: &out}, format: formatText, page: func() {}}
	if err := p.record([]field{{"id", "a"}, {"title", "x\ny"}, {"empty", ""}}, nil); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "id:    a\ntitle: x y\n" {
		t.Errorf("%q", got)
	}
}
