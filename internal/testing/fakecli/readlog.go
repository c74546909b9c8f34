package fakecli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
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

// Accepted counts, for each thing that a CLI asked, how many answers it took in one life and
// while it had the session: one that ends before the answer had its effect asks again. That
// the effect comes once at most is seen in the history.
func Accepted(log []Entry) map[string]int {
	type request struct{ SessionID, RequestID string }
	asked := map[string]request{} // by the ids of this life
	loads := map[string]int{}
	out := map[string]int{}
	life := 0
	for _, e := range log {
		switch e.Kind {
		case EntryReceived:
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
		case EntryReply:
			var r struct{ Success bool }
			if q, ok := asked[e.ID]; ok && json.Unmarshal(e.Body, &r) == nil && r.Success {
				out[fmt.Sprintf("%s (life %d, load %d)", q.RequestID, life, loads[q.SessionID])]++
			}
		}
	}
	return out
}
