package cluster

import (
	"fmt"
	"os"
	"path/filepath"
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
		tail, err := openTail(folder)
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
	tail, err := openTail(folder)
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
