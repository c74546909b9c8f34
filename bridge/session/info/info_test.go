package info

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

var (
	began = time.Date(2031, 6, 1, 8, 0, 0, 0, time.UTC)
	now   = began.Add(time.Hour)
)

func TestApply(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		event, data string
		change      Change
		want        Info
	}{
		{"session.start", `{"startTime":"2031-06-01T08:00:00Z","selectedModel":"m","context":{"cwd":"/a"}}`, None,
			Info{Start: began, Model: "m", Context: Context{Cwd: "/a"}}},
		{"session.resume", `{}`, None, Info{}},
		{"session.title_changed", `{"title":"t"}`, Announce, Info{Summary: "t"}},
		{"session.title_changed", `{"title":""}`, None, Info{}},
		{"session.model_change", `{"newModel":"m"}`, Save, Info{Model: "m"}},
		{"session.model_change", `{}`, None, Info{}},
		{"session.context_changed", `{"cwd":"/a","branch":"b"}`, None, Info{Context: Context{Cwd: "/a", Branch: "b"}}},
		{"session.context_changed", `{"branch":"b"}`, None, Info{}},
		{"capabilities.changed", `{"extensions":true}`, None, Info{Capabilities: Capabilities{Extensions: true}}},
		{"user.message", `{}`, Save, Info{Modified: now}},
		{"session.idle", `{}`, Save, Info{Modified: now}},
		{"assistant.message", `{}`, None, Info{}},
	} {
		var got Info
		change := got.Apply(&journal.Record{Type: test.event, JSON: fmt.Appendf(nil, `{"type":%q,"data":%s}`, test.event, test.data)}, now)
		if change != test.change || got != test.want {
			t.Errorf("%s %s: change %d, %+v; want %d, %+v", test.event, test.data, change, got, test.change, test.want)
		}
	}
}

func TestApplyResult(t *testing.T) {
	t.Parallel()
	config, err := jsonobj.Parse([]byte(`{"model":"configured","workingDirectory":"/work"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		result       string
		before, want Info
	}{
		{`not JSON`, Info{Name: "n"}, Info{Name: "n"}},
		{`{}`, Info{}, Info{Model: "configured", Context: Context{Cwd: "/work"}}},
		{`{}`, Info{Model: "m", Context: Context{Cwd: "/a"}, IsRemote: true}, Info{Model: "m", Context: Context{Cwd: "/a"}}},
		{`{"startTime":"2031-06-01T08:00:00Z","modelState":{"modelId":"m"},"workspacePath":"/w","isRemote":true}`, Info{},
			Info{Start: began, Modified: began, Model: "m", WorkspacePath: "/w", IsRemote: true, Context: Context{Cwd: "/work"}}},
		{`{"startTime":"2031-06-01T08:00:00Z"}`, Info{Modified: now, Model: "m"},
			Info{Start: began, Modified: now, Model: "m", Context: Context{Cwd: "/work"}}},
	} {
		got := test.before
		got.ApplyResult(json.RawMessage(test.result), config)
		if got != test.want {
			t.Errorf("%s on %+v: %+v, want %+v", test.result, test.before, got, test.want)
		}
	}
}
