package fakecli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// ReadLog reads the log that executables have appended to a file (FAKECOPILOT_ORACLE). A file that does not exist has
// no entries.
func ReadLog(path string) (all []Entry, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return all, nil // a line that a kill cut off says nothing
		}
		var e Entry
		if json.Unmarshal(line, &e) == nil {
			all = append(all, e)
		}
	}
}

// Answer is an answer that a CLI took to something that it had asked.
type Answer struct {
	SessionID, RequestID string
	// Params are those of the call with the answer.
	Params json.RawMessage
	// Life counts the processes that wrote the log, Load how often the CLI had unloaded the session before.
	Life, Load int
	// At and Until are the times of the call and of its reply, to the millisecond below.
	At, Until time.Time
}

// Answers returns the answers that CLIs took.
func Answers(log []Entry) (out []Answer) {
	asked := map[string]Answer{} // by the ids of this life
	loads := map[string]int{}
	life := 0
	for _, e := range log {
		switch e.Kind {
		case EntryReceived:
			var m struct {
				Params struct{ SessionID, RequestID string }
			}
			var raw struct{ Params json.RawMessage }
			switch {
			case e.Type == "connect": // another process, with new ids
				clear(asked)
				life++
			case json.Unmarshal(e.Body, &m) != nil || json.Unmarshal(e.Body, &raw) != nil:
			case e.Type == "session.destroy":
				loads[m.Params.SessionID]++
			case m.Params.RequestID != "":
				asked[e.ID] = Answer{SessionID: m.Params.SessionID, RequestID: m.Params.RequestID, Params: raw.Params,
					Life: life, At: e.at()}
			}
		case EntryReply:
			var r struct{ Success bool }
			if a, ok := asked[e.ID]; ok && json.Unmarshal(e.Body, &r) == nil && r.Success {
				a.Load, a.Until = loads[a.SessionID], e.at()
				out = append(out, a)
			}
		}
	}
	return out
}

// at returns the entry's time.
func (e *Entry) at() time.Time {
	t, _ := time.Parse(timeFormat, e.Time) // stamp wrote it
	return t
}

// Accepted counts, for each thing that a CLI asked, how many answers it took in one life and
// while it had the session: one that ends before the answer had its effect asks again. That
// the effect comes once at most is seen in the history.
func Accepted(log []Entry) map[string]int {
	out := map[string]int{}
	for _, a := range Answers(log) {
		out[fmt.Sprintf("%s (life %d, load %d)", a.RequestID, a.Life, a.Load)]++
	}
	return out
}
