package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// eventText is an event of the log: the first one starts the session.
func eventText(i int) string {
	kind := "user.message"
	if i == 0 {
		kind = firstEvent
	}
	return fmt.Sprintf(`{"id":"e%d","type":%q,"data":{"n":%d}}`, i, kind, i)
}

// Whatever part of the log the record has, and whatever it has besides, it then has all later events once and in order.
func TestRecordIsCompleted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		folder := filepath.Join(t.TempDir(), "s")
		path := filepath.Join(folder, recordFile)
		events := rapid.IntRange(1, 8).Draw(rt, "events of the log")
		saved := rapid.IntRange(0, events).Draw(rt, "events of the record")
		var record strings.Builder
		for i := range saved {
			if i < saved-1 && rapid.Bool().Draw(rt, "the record lacks it") {
				continue // the CLI has left it out
			}
			record.WriteString(eventText(i) + "\n")
			for j := range rapid.IntRange(0, 2).Draw(rt, "lines that the log does not have") {
				fmt.Fprintf(&record, `{"id":"u%d-%d","type":"session.usage_record"}`+"\n", i, j)
			}
		}
		want := record.String()
		for i := saved; i < events; i++ {
			want += eventText(i) + "\n"
		}
		if rapid.Bool().Draw(rt, "there is a file") || saved > 0 {
			text := record.String()
			if saved < events && rapid.Bool().Draw(rt, "the last line is cut off") {
				next := eventText(saved)
				text += next[:len(next)-rapid.IntRange(0, len(next)).Draw(rt, "bytes that it lacks, besides its end")]
			}
			if err := os.MkdirAll(folder, 0o700); err != nil {
				rt.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				rt.Fatal(err)
			}
		}
		tail, err := openTail(folder, noneLost)
		if err != nil {
			rt.Fatal(err)
		}
		for i := range events {
			tail.add([]byte(eventText(i)))
		}
		if err := tail.write(folder); err != nil {
			rt.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			rt.Errorf("the record is\n%swant\n%s%v", got, want, err)
		}
	})
}

// A log whose first events were trimmed cannot make a record.
func TestTrimmedLogMakesNoRecord(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	tail, err := openTail(folder, noneLost)
	if err != nil {
		t.Fatal(err)
	}
	tail.add([]byte(eventText(1)))
	if err := tail.write(folder); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, recordFile)); !os.IsNotExist(err) {
		t.Errorf("there is a record without a beginning: %v", err)
	}
}

func noneLost(string) bool { return false }

// A message that is known to be lost does not come back, nor does what followed from it in its process. The CLI's later work does.
func TestLostMessageIsNotCompleted(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, recordFile)
	lines := []string{
		`{"id":"1","type":"session.start"}`,
		`{"id":"2","type":"user.message","data":{"messageId":"kept"}}`,
		`{"id":"3","type":"user.message","data":{"messageId":"lost"}}`,
		`{"id":"4","type":"user.message","agentId":"helper","data":{"messageId":"of an agent"}}`,
		`{"id":"5","type":"assistant.message"}`,
		`{"id":"6","type":"session.resume"}`,
		`{"id":"7","type":"permission.completed"}`,
		`{"id":"8","type":"user.message","data":{"messageId":"lost"}}`,
		`{"id":"9","type":"assistant.turn_start"}`,
		`{"id":"10","type":"user.message","data":{"messageId":"later"}}`,
		`{"id":"11","type":"assistant.message"}`,
	}
	if err := os.WriteFile(path, []byte(lines[0]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tail, err := openTail(folder, func(id string) bool { return id == "lost" })
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		tail.add([]byte(line))
	}
	if err := tail.write(folder); err != nil {
		t.Fatal(err)
	}
	want := strings.Join(slices.Concat(lines[:2], lines[5:7], lines[9:]), "\n") + "\n"
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("the record is\n%swant\n%s%v", got, want, err)
	}
}

// What a caller has cut does not come back, whether the record was saved before or after the cut.
func TestCutHistoryIsNotCompleted(t *testing.T) {
	t.Parallel()
	lines := []string{
		`{"id":"1","type":"session.start"}`,
		`{"id":"2","type":"user.message"}`,
		`{"id":"3","type":"user.message"}`,
		`{"id":"4","type":"assistant.message"}`,
		`{"id":"5","type":"session.snapshot_rewind","data":{"upToEventId":"3"}}`,
		`{"id":"6","type":"user.message"}`,
	}
	for _, saved := range [][]int{{0, 1}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 5}} {
		for _, more := range []bool{false, true} {
			want := slices.Clone(lines[:2])
			log := lines[:5]
			if more {
				want, log = append(want, lines[5]), lines
			} else if saved[len(saved)-1] == 5 {
				continue
			}
			folder := t.TempDir()
			path := filepath.Join(folder, recordFile)
			var record []string
			for _, i := range saved {
				record = append(record, lines[i])
			}
			if err := os.WriteFile(path, []byte(strings.Join(record, "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			tail, err := openTail(folder, noneLost)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range log {
				tail.add([]byte(line))
			}
			if err := tail.write(folder); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != strings.Join(want, "\n")+"\n" {
				t.Errorf("saved %v, more %v: the record is\n%swant\n%s%v", saved, more, got, want, err)
			}
		}
	}
}
