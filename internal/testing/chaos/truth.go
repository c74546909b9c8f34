package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// said is an event of the CLI's own history.
type said struct {
	ID   string          `json:"id"`
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
	raw  []byte
}

// kept is what the CLI itself keeps of a session, in order.
func (k *checker) kept(session string) (out []said, err error) {
	text, err := os.ReadFile(filepath.Join(k.home, "session-state", session, "events.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, line := range bytes.Split(text, []byte("\n")) {
		e := said{raw: line}
		if json.Unmarshal(line, &e) == nil && e.ID != "" {
			out = append(out, e)
		}
	}
	return out, err
}

// emitted is the order in which the fake CLIs emitted the events of all sessions, by id.
func emitted(log []fakecli.Entry) map[string]int {
	out := map[string]int{}
	for i, e := range log {
		if e.Kind == fakecli.EntryEvent {
			out[e.ID] = i
		}
	}
	return out
}

// accepted counts, for each thing that a CLI asked, how many answers it took in one life and
// while it had the session: one that ends before the answer had its effect asks again. That
// the effect comes once at most is seen in the history.
func accepted(log []fakecli.Entry) map[string]int {
	type request struct{ SessionID, RequestID string }
	asked := map[string]request{} // by the ids of this life
	loads := map[string]int{}
	out := map[string]int{}
	life := 0
	for _, e := range log {
		switch e.Kind {
		case fakecli.EntryReceived:
			var m struct{ Params request }
			switch {
			case e.Type == "connect": // another process, with new ids
				clear(asked)
				life++
			case json.Unmarshal(e.Body, &m) != nil:
			case e.Type == "session.destroy":
				loads[m.Params.SessionID]++
			case m.Params.RequestID != "":
				asked[e.ID] = m.Params
			}
		case fakecli.EntryReply:
			var r struct{ Success bool }
			if q, ok := asked[e.ID]; ok && json.Unmarshal(e.Body, &r) == nil && r.Success {
				out[fmt.Sprintf("%s (life %d, load %d)", q.RequestID, life, loads[q.SessionID])]++
			}
		}
	}
	return out
}
