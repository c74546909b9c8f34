package transfer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/record"
	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
)

// journalLink is the event with which a file continues another one.
func journalLink(previous string) string {
	return fmt.Sprintf(`{"type":"session.journal_link","data":{"previousFile":%q,"sessionId":"s","version":1},"id":"l",`+
		`"parentId":null}`+"\n", previous)
}

// message is a message of the user, with a parent.
func message(id, parent string) string {
	return fmt.Sprintf(`{"type":"user.message","data":{"content":%q},"id":%q,"parentId":%q}`+"\n", id, id, parent)
}

// copyOf is an event as a later file repeats it.
func copyOf(event string) string { return `{"checkpoint":true,` + event[1:] }

// chained is a record of three files. The newest begins with copies that are marked, the middle one with copies that
// are not.
func chained() map[string]string {
	oldest := start + "\n" + message("2", "1")
	return map[string]string{
		"events.1.jsonl": oldest,
		"events.2.jsonl": start + "\n" + journalLink("events.1.jsonl") + message("2", "1") + message("3", "2"),
		"events.jsonl": journalLink("events.2.jsonl") + copyOf(start+"\n") +
			copyOf(`{"type":"user.message","data":{"content":"summary"},"id":"c","parentId":"1"}`+"\n") + message("4", "c"),
		"files/a.txt": "text", "session.db": "x", "events.9.jsonl": "of no link",
	}
}

// home makes a state directory with the files of session s.
func home(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, sessionsFolder, "s", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// exported is the archive of the session in a state directory.
func exported(t *testing.T, home string) (*spool, error) {
	t.Helper()
	parts, err := newSpool()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(parts.remove)
	for _, name := range []string{stateFile, journalFile} {
		if err := parts.add(name, func(w io.Writer) error { _, err := io.WriteString(w, "{}"); return err }); err != nil {
			t.Fatal(err)
		}
	}
	return parts, copyFolder(home, "s", parts)
}

// imported unpacks an archive and makes the folder of session new of it.
func imported(t *testing.T, parts *spool) (*staging, error) {
	t.Helper()
	packed, err := newSpool()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(packed.remove)
	if _, err := parts.pack(archive.Manifest{Session: "s"}, packed); err != nil {
		t.Fatal(err)
	}
	s, err := newStaging(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.remove(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.unpack(t.Context(), packed.file, func(int64) error { return nil }); err != nil {
		return s, err
	}
	return s, s.prepare("new", "/work", "", nil)
}

// TestRecordOfSeveralFiles: an archive has each file of the record as it is. The import has each event once, in one
// file, and none of the copies.
func TestRecordOfSeveralFiles(t *testing.T) {
	t.Parallel()
	files := chained()
	parts, err := exported(t, home(t, files))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range parts.parts {
		names = append(names, p.Name)
	}
	want := []string{stateFile, journalFile, "history/events.1.jsonl", "history/events.2.jsonl", "history/events.jsonl",
		"history/files/a.txt"}
	if !slices.Equal(names, want) {
		t.Fatalf("the archive has %q, want %q", names, want)
	}
	s, err := imported(t, parts)
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.folder.ReadFile(path.Join(historyFolder, recordFile))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for line := range strings.Lines(string(text)) {
		events, err := rewrittenLine(line)
		if err != nil {
			t.Fatal(err)
		}
		parent := ""
		if events.ParentID != nil {
			parent = *events.ParentID
		}
		ids = append(ids, parent+">"+events.ID)
	}
	if want := []string{">1", "1>2", "2>3", "3>4"}; !slices.Equal(ids, want) {
		t.Errorf("the record has the events %q, want %q: %s", ids, want, text)
	}
	for _, name := range []string{"events.1.jsonl", "events.2.jsonl"} {
		if _, err := s.folder.Stat(path.Join(historyFolder, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}

// TestRecordNotUnderstood: a record that may be incomplete is neither exported nor imported.
func TestRecordNotUnderstood(t *testing.T) {
	t.Parallel()
	for name, newest := range map[string]string{
		"outside":       journalLink("../t/events.1.jsonl"),
		"missing":       journalLink("events.7.jsonl"),
		"a new version": strings.Replace(journalLink("events.1.jsonl"), `"version":1`, `"version":9`, 1),
		"another's":     strings.Replace(journalLink("events.1.jsonl"), `"s"`, `"t"`, 1),
	} {
		files := chained()
		files["events.jsonl"] = newest
		_, err := exported(t, home(t, files))
		if !errors.Is(err, record.ErrUnknown) {
			t.Errorf("%s: exported, %v", name, err)
		}
		err = (&Service{}).exportFailed("s", err)
		if fault.ReasonOf(err) != fault.SessionUnavailable || !strings.Contains(err.Error(), "events.") {
			t.Errorf("%s: callers get %v", name, err)
		}
		var parts *spool
		if parts, err = exported(t, home(t, map[string]string{"events.1.jsonl": start})); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"events.jsonl": newest, "events.1.jsonl": start} {
			add := func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
			if err := parts.add(path.Join(historyFolder, file), add); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := imported(t, parts); !errors.Is(err, archive.ErrInvalid) {
			t.Errorf("%s: imported, %v", name, err)
		}
	}
	parts, err := exported(t, home(t, map[string]string{"events.jsonl": start}))
	if err == nil {
		err = parts.add("history/events.3.jsonl", func(w io.Writer) error { _, err := io.WriteString(w, start); return err })
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := imported(t, parts); !errors.Is(err, archive.ErrInvalid) {
		t.Errorf("a file of no link: imported, %v", err)
	}
}
