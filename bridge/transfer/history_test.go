package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

const start = `{"type":"session.start","data":{"sessionId":"s1","version":1,"selectedModel":"m","hooks":["x"],` +
	`"context":{"cwd":"/etc","gitRoot":"/"},"remoteSteerable":true},"id":"1","parentId":null}`

// recordEvent is an event of a record, for the tests.
type recordEvent struct {
	Type     string
	ID       string
	ParentID *string `json:"parentId"`
	Data     map[string]any
}

// rewritten returns the events of the record that an import makes of lines.
func rewritten(lines ...string) (events []recordEvent, err error) {
	var out bytes.Buffer
	w := recordWriter{id: "new", dir: "/work"}
	if err := w.rewrite(strings.NewReader(strings.Join(lines, "\n")), &out); err != nil {
		return nil, err
	}
	for line := range strings.Lines(out.String()) {
		var e recordEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// TestRecord: the imported record has the conversation, without what the CLI would restore from the rest.
func TestRecord(t *testing.T) {
	t.Parallel()
	events, err := rewritten(start,
		`{"type":"session.permissions_changed","data":{"mode":"allow-all"},"id":"2","parentId":"1"}`,
		`{"type":"session.mode_changed","data":{"newMode":"autopilot"},"id":"3","parentId":"2"}`,
		`{"type":"user.message","data":{"content":"<hi>","agentMode":"autopilot"},"id":"4","parentId":"3","extra":1}`,
		`{"type":"assistant.message","type":"session.permissions_changed","data":{},"id":"5","parentId":"4"}`,
		``,
		`{"type":"assistant.message","data":{"content":"hello"},"id":"6","parentId":"5"}`)
	if err != nil || len(events) != 3 {
		t.Fatalf("events %v: %v", events, err)
	}
	begin, user, agent := events[0], events[1], events[2]
	if c := begin.Data["context"].(map[string]any); len(c) != 1 || c["cwd"] != "/work" ||
		begin.Data["sessionId"] != "new" || begin.Data["hooks"] != nil || begin.Data["remoteSteerable"] != false ||
		begin.Data["selectedModel"] != "m" {
		t.Errorf("begins with %v", begin.Data)
	}
	if user.Type != "user.message" || user.Data["content"] != "<hi>" || len(user.Data) != 1 || *user.ParentID != "1" {
		t.Errorf("goes on with %v", user)
	}
	if agent.Data["content"] != "hello" || *agent.ParentID != "4" {
		t.Errorf("ends with %v", agent)
	}
}

func TestRecordRefused(t *testing.T) {
	t.Parallel()
	const said = `{"type":"user.message","data":{},"id":"2","parentId":"1"}`
	for name, lines := range map[string][]string{
		"no JSON":      {"{"},
		"no event":     {"[]"},
		"no type":      {`{"type":1}`},
		"no start":     {said},
		"two starts":   {start, start},
		"no data":      {start, `{"type":"user.message","id":"2"}`},
		"data is text": {start, `{"type":"user.message","data":"x","id":"2"}`},
		"not UTF-8":    {start, "{\"type\":\"user.message\",\"data\":{\"content\":\"\xff\"}}"},
	} {
		if events, err := rewritten(lines...); !errors.Is(err, archive.ErrInvalid) {
			t.Errorf("%s: %v, %v", name, events, err)
		}
	}
	if _, err := rewritten(start, strings.Repeat("x", maxLine+1)); !errors.Is(err, archive.ErrLimit) {
		t.Errorf("a long line: %v", err)
	}
}

// FuzzRecord: a record has only events of the conversation, in one chain of parents, and one session.start, which is
// the import's.
func FuzzRecord(f *testing.F) {
	f.Add(start + "\n" + `{"type":"user.message","data":{"agentMode":"x"},"id":"2","parentId":"1"}`)
	f.Add(start + "\n" + `{"type":"x","data":{},"id":"2","parentId":"1"}` + "\n" +
		`{"type":"abort","data":{},"id":"3","parentId":"2"}`)
	f.Fuzz(func(t *testing.T, text string) {
		events, err := rewritten(text)
		if err != nil {
			return
		}
		for i, e := range events {
			if _, known := conversation[e.Type]; !known || (i == 0) != (e.Type == "session.start") {
				t.Fatalf("event %d is %q", i, e.Type)
			}
			if i == 0 && (e.Data["sessionId"] != "new" || e.Data["context"].(map[string]any)["cwd"] != "/work") {
				t.Fatalf("the record begins with %v", e.Data)
			}
			if _, has := e.Data["agentMode"]; has && e.Type == "user.message" {
				t.Fatalf("event %d sets a mode", i)
			}
		}
	})
}

// rewrittenLine is the event in a line.
func rewrittenLine(line string) (e recordEvent, err error) {
	return e, json.Unmarshal([]byte(line), &e)
}
