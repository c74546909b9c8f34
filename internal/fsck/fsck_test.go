package fsck_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/internal/fsck"
)

func TestClosedInOrder(t *testing.T) {
	t.Parallel()
	r := verify(t, closedDir(t))
	if r.Damage.Total+r.Notes.Total > 0 || r.Locked || len(r.Sessions) != sessions {
		t.Errorf("%+v", r)
	}
	prompts := 0
	for i := range sessions {
		s := sessionOf(t, r, key(i))
		prompts += s.Prompts
		if s.Events != 150 || s.First != 1 || s.Last != 299 || !s.Closed || s.Holes != nil || s.Losses != nil || s.Bytes == 0 {
			t.Errorf("%+v", s)
		}
	}
	if prompts != 5 {
		t.Errorf("%d prompts wait", prompts)
	}
}

func sessionOf(t *testing.T, r *fsck.Report, key string) fsck.Session {
	t.Helper()
	i := slices.IndexFunc(r.Sessions, func(s fsck.Session) bool { return s.Key == key })
	if i < 0 {
		t.Fatalf("no session %q in %+v", key, r)
	}
	return r.Sessions[i]
}

// A directory that a server uses is read while the server writes.
func TestLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := openBridge(dir, sessions)
	b.round(20)
	r := verify(t, dir)
	if !r.Locked || r.Damage.Total > 0 || sessionOf(t, r, key(0)).Events != 20 || sessionOf(t, r, key(0)).Closed {
		t.Errorf("%+v", r)
	}
	b.close()
	if r := verify(t, dir); r.Locked {
		t.Error("it is locked without a server")
	}
}

// A process that is killed while it writes leaves no damage, and neither does its successor.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for life := range 6 {
		least := kill(t, dir, 300*(life%3)+60)
		r := verify(t, dir)
		events := 0
		for _, s := range r.Sessions {
			events += s.Events
		}
		if r.Damage.Total > 0 || events < least || r.Locked {
			t.Fatalf("life %d: %d events, %d were written; %+v %+v", life, events, least, r.Damage, r.Notes)
		}
	}
}

// kill runs a process that writes to a directory, and kills it after it has written some events. It returns how many it
// has written at least.
func kill(t *testing.T, dir string, events int) (written int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writeEnv+"="+dir)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); written < events && lines.Scan(); {
		if written, err = strconv.Atoi(lines.Text()); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if written < events {
		t.Fatalf("it ended after %d events: %s", written, &errs)
	}
	return written
}

// change changes one file of a copy of a directory, and returns what is found.
func change(t *testing.T, dir, name string, edit func(data []byte) []byte) *fsck.Report {
	t.Helper()
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, edit(bytes.Clone(data)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := verify(t, dir)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// unchecked reports a place of a file that no checksum covers.
func unchecked(name string, data []byte, at int) bool {
	switch base := filepath.Base(name); {
	case strings.Contains(name, "outbox/"), base == "opening", base == "lock":
		return true
	case base == "epoch", base == "overruns", base == "format":
		return at%4096 >= 12
	case base == "session":
		return at > bytes.LastIndex(data, []byte(`"number":`))+len(`"number":`)-1
	}
	return false
}

// A flipped bit is found wherever the page says that a checksum covers it, and nowhere does the verifier fail.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	for kind, dir := range map[string]string{"closed": closedDir(t), "killed": killedDir(t, sessions, 3)} {
		rnd := rand.New(rand.NewPCG(1, 2))
		var names []string
		err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
			if info, _ := e.Info(); err == nil && !e.IsDir() && info.Size() > 0 {
				names = append(names, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			for range 3 {
				var at int
				var bit byte
				var skip bool
				r := change(t, dir, name, func(data []byte) []byte {
					at, bit = rnd.IntN(len(data)), 1<<rnd.IntN(8)
					skip = unchecked(name, data, at)
					data[at] ^= bit
					return data
				})
				if r.Damage.Total == 0 && !skip {
					t.Errorf("%s: %s: bit %d of byte %d is not found: %+v", kind, name, bit, at, r.Notes)
				}
			}
		}
	}
}

// oneSession is the directory of a killed server with one session, whose journal is one small segment. All events have
// left the joint log.
func oneSession(t *testing.T) (dir, name string) {
	t.Helper()
	dir = killedDir(t, 1, 1)
	var events []segment.Entry
	log, _, err := segment.Open(filepath.Join(dir, "journals"), 1, segment.Options{FS: segment.OS{}}, func(_ uint64, body []byte) error {
		body = body[1+len(key(0)):]
		var fields [3]uint64 // epoch, number before, number
		for i := range fields {
			size := 0
			fields[i], size = binary.Uvarint(body)
			body = body[size:]
		}
		if fields[0] != 0 { // else it is a value
			events = append(events, segment.Entry{Number: fields[2], Body: bytes.Clone(body)})
		}
		return nil
	})
	must(t, errors.Join(err, log.Rest(), os.RemoveAll(filepath.Join(dir, "journals"))))
	name = files(t, dir, "sessions/*/*.seg")[0][len(dir)+1:]
	appendTo(t, filepath.Join(dir, filepath.Dir(name)), func(*segment.Log) []segment.Entry { return events })
	return dir, name
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Every bit of a segment is covered, also at its end, where a wrong length could pass for a frame that was not finished.
func TestEveryBit(t *testing.T) {
	t.Parallel()
	dir, name := oneSession(t)
	data, err := os.ReadFile(filepath.Join(dir, name))
	must(t, err)
	for at := range data {
		for bit := range 8 {
			if bit > 0 && at > 60 && at < len(data)-200 {
				continue
			}
			r := change(t, dir, name, func(data []byte) []byte {
				data[at] ^= 1 << bit
				return data
			})
			if r.Damage.Total == 0 {
				t.Errorf("bit %d of byte %d of %d is not found: %+v", bit, at, len(data), r.Notes)
			}
		}
	}
}

// A segment that ends anywhere is what a killed server leaves.
func TestTornEnd(t *testing.T) {
	t.Parallel()
	dir, name := oneSession(t)
	data, err := os.ReadFile(filepath.Join(dir, name))
	must(t, err)
	for size := range data {
		if r := change(t, dir, name, func(data []byte) []byte { return data[:size] }); r.Damage.Total > 0 {
			t.Fatalf("the first %d bytes of %d: %+v", size, len(data), r.Damage)
		}
	}
	for _, more := range [][]byte{{0}, {0, 0, 0, 0, 0, 0, 0, 0, 0}, bytes.Repeat([]byte{0xff}, 20)} {
		r := change(t, dir, name, func(data []byte) []byte { return append(data, more...) })
		if (r.Damage.Total > 0) != (len(more) >= 8) || r.Damage.Total+r.Notes.Total != 1 {
			t.Errorf("%d bytes more: %+v %+v", len(more), r.Damage, r.Notes)
		}
	}
}

func TestMissingSegments(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		name string
		edit func(all []string) error
		// found is a part of the damage; empty if the page says that it cannot be told.
		found string
	}{
		{"first", func(all []string) error { return os.Remove(all[0]) }, ""},
		{"middle", func(all []string) error { return os.Remove(all[1]) }, "begins after entry"},
		{"cut", func(all []string) error { return os.Truncate(all[1], 5000) }, "damaged bytes at"},
		{"empty", func(all []string) error { return os.Truncate(all[1], 0) }, "is empty"},
		{"another's", func(all []string) error {
			data, err := os.ReadFile(all[0])
			return errors.Join(err, os.WriteFile(all[1], data, 0o600))
		}, "header of another"},
		{"a link", func(all []string) error { return errors.Join(os.Remove(all[1]), os.Symlink(all[2], all[1])) }, "regular"},
		{"a folder", func(all []string) error { return errors.Join(os.Remove(all[1]), os.Mkdir(all[1], 0o700)) }, "regular"},
		{"a pipe", func(all []string) error { return errors.Join(os.Remove(all[1]), syscall.Mkfifo(all[1], 0o600)) }, "regular"},
		{"unreadable", func(all []string) error {
			return os.WriteFile(all[1], bytes.Repeat([]byte("garbage"), 2000), 0o600)
		}, "damaged bytes at 0"},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			dir := closedDir(t)
			must(t, one.edit(files(t, dir, "sessions/"+key(0)+"/*.seg")))
			r := verify(t, dir)
			s := sessionOf(t, r, key(0))
			if found := fmt.Sprint(r.Damage); !strings.Contains(found, one.found) || (r.Damage.Total > 0) != (one.found != "") ||
				s.Damage != r.Damage.Total || (len(s.Holes) > 0) != (one.found != "") {
				t.Errorf("%+v\n%+v", s, r.Damage)
			}
		})
	}
}

// appendTo appends entries to the log in a folder.
func appendTo(t *testing.T, dir string, entries func(l *segment.Log) []segment.Entry) {
	t.Helper()
	l, _, err := segment.Open(dir, 1, segment.Options{FS: segment.OS{}}, func(uint64, []byte) error { return nil })
	must(t, err)
	must(t, l.Append(entries(l)))
	must(t, l.Rest())
}

// eventBody is the body of an event.
func eventBody(id byte, text string) []byte {
	body := append(make([]byte, 17), "\x01t\x00"...)
	body[1] = id
	return append(body, text...)
}

// jointEntry is the body of an event in the joint log.
func jointEntry(key string, epoch, prev, number uint64, body []byte) []byte {
	out := append(binary.AppendUvarint(nil, uint64(len(key))), key...)
	for _, n := range []uint64{epoch, prev, number} {
		out = binary.AppendUvarint(out, n)
	}
	return append(out, body...)
}

// Frames with right checksums that no server writes are found, and what a crash leaves is no damage.
func TestInvariants(t *testing.T) {
	t.Parallel()
	base, _ := oneSession(t)
	journalDir := "sessions/" + key(0)
	epoch := verify(t, base).Sessions[0].Epoch
	journal := func(entry func(last uint64) segment.Entry) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			appendTo(t, filepath.Join(dir, journalDir), func(l *segment.Log) []segment.Entry {
				return []segment.Entry{entry(l.Last())}
			})
		}
	}
	joint := func(bodies ...[]byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			appendTo(t, filepath.Join(dir, "journals"), func(l *segment.Log) (out []segment.Entry) {
				for i, body := range bodies {
					out = append(out, segment.Entry{Number: l.Last() + 1 + uint64(i), Body: body})
				}
				return out
			})
		}
	}
	write := func(name, text string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
		}
	}
	remove := func(names ...string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			for _, name := range names {
				must(t, os.Remove(filepath.Join(dir, name)))
			}
		}
	}
	value := func(kind uint64, text string) []byte { return jointEntry(key(0), 0, kind, 0, []byte(text)) }
	file := func(name, text string) func(t *testing.T, dir string) { // of the outbox, of which the joint log has nothing
		return func(t *testing.T, dir string) {
			joint(value(3, ""))(t, dir)
			write(journalDir+"/outbox/"+name, text)(t, dir)
		}
	}
	const waits = `{"n":1,"prompt":{}}` + "\n" + `{"state":{"next":1,"entries":[{"n":1,"ids":["a"]}]}}` + "\n"
	const lacks = `{"state":{"next":1,"entries":[{"n":1,"ids":["a"]}]}}` + "\n"
	for name, one := range map[string]struct {
		edit  func(t *testing.T, dir string)
		found string // a part of the damage
		note  string
	}{
		"an event": {edit: journal(func(last uint64) segment.Entry {
			return segment.Entry{Number: last + 1, Body: eventBody(1, "{}")}
		})},
		"an event above the reserved ones": {edit: journal(func(uint64) segment.Entry {
			return segment.Entry{Number: 1 << 40, Body: eventBody(1, "{}")}
		}), found: "the last reserved number"},
		"an event that is none": {edit: journal(func(last uint64) segment.Entry {
			return segment.Entry{Number: last + 1, Body: eventBody(1, "")[:18]}
		}), found: "is not an event"},
		"a mark that is none": {edit: journal(func(uint64) segment.Entry {
			return segment.Entry{Mark: true, Body: []byte("mark")}
		}), found: "is not a mark"},
		"an id twice": {edit: func(t *testing.T, dir string) {
			appendTo(t, filepath.Join(dir, journalDir), func(l *segment.Log) []segment.Entry {
				return []segment.Entry{{Number: l.Last() + 1, Body: eventBody(7, "{}")}, {Number: l.Last() + 2, Body: eventBody(7, "{}")}}
			})
		}, found: "twice"},
		"no id twice": {edit: func(t *testing.T, dir string) {
			appendTo(t, filepath.Join(dir, journalDir), func(l *segment.Log) []segment.Entry {
				return []segment.Entry{{Number: l.Last() + 1, Body: eventBody(0, "{}")}, {Number: l.Last() + 2, Body: eventBody(0, "{}")}}
			})
		}},
		"an event in the joint log": {edit: joint(jointEntry(key(0), epoch, 9, 11, eventBody(1, "{}")))},
		"of a deleted session":      {edit: joint(jointEntry("gone", epoch, 9, 11, eventBody(1, "{}")))},
		"of an earlier epoch":       {edit: joint(jointEntry(key(0), epoch-1, 9, 11, eventBody(1, "{}")))},
		"of a later epoch":          {edit: joint(jointEntry(key(0), epoch+1, 9, 11, eventBody(1, "{}"))), found: "of epoch"},
		"behind missing ones":       {edit: joint(jointEntry(key(0), epoch, 20, 21, eventBody(1, "{}"))), found: "lacks events up to 20"},
		"that the journal lacks":    {edit: joint(jointEntry(key(0), epoch, 1, 2, eventBody(1, "{}"))), found: "lacks event 2"},
		"the journal has another":   {edit: joint(jointEntry(key(0), epoch, 1, 3, eventBody(1, "{}"))), found: "another event 3"},
		"behind itself":             {edit: joint(jointEntry(key(0), epoch, 11, 11, eventBody(1, "{}"))), found: "behind event"},
		"joint events out of order": {edit: joint(jointEntry(key(0), epoch, 9, 12, eventBody(1, "{}")),
			jointEntry(key(0), epoch, 9, 11, eventBody(2, "{}"))), found: "behind event"},
		"an id in both logs": {edit: joint(jointEntry(key(0), epoch, 9, 11, eventBody(1, "{}")),
			jointEntry(key(0), epoch, 11, 12, eventBody(1, "{}"))), found: "twice"},
		"no joint event": {edit: joint([]byte("joint")), found: "not an event or a value of a session"},
		"a mark in the joint log": {edit: func(t *testing.T, dir string) {
			appendTo(t, filepath.Join(dir, "journals"), func(*segment.Log) []segment.Entry {
				return []segment.Entry{{Mark: true, Body: []byte("m")}}
			})
		}, found: "which this log has not"},
		"no request": {edit: func(t *testing.T, dir string) {
			appendTo(t, filepath.Join(dir, "requests"), func(l *segment.Log) []segment.Entry {
				return []segment.Entry{{Number: l.Last() + 1, Body: []byte("\x02")}, {Number: l.Last() + 2, Body: []byte("\x01\x00\x02\x09")}}
			})
		}, found: "not a request"},
		"no state": {edit: func(t *testing.T, dir string) {
			appendTo(t, filepath.Join(dir, "states"), func(l *segment.Log) []segment.Entry {
				return []segment.Entry{{Number: l.Last() + 1, Body: []byte("\x09a")}}
			})
		}, found: "not the state"},
		"a state of a damaged file": {edit: func(t *testing.T, dir string) {
			appendTo(t, filepath.Join(dir, "states"), func(l *segment.Log) []segment.Entry {
				return []segment.Entry{{Number: l.Last() + 1, Body: append([]byte("\x07plain-0"), "{}"...)}}
			})
			write(journalDir+"/session", "{}")(t, dir)
		}, found: "a log has a later state"},
		"a state in the joint log of a damaged file": {edit: func(t *testing.T, dir string) {
			appendTo(t, filepath.Join(dir, "journals"), func(l *segment.Log) []segment.Entry {
				return []segment.Entry{{Number: l.Last() + 1, Body: append([]byte("\x07plain-0\x00\x01\x09"), "{}"...)}}
			})
			write(journalDir+"/session", "{}")(t, dir)
		}, found: "a log has a later state"},
		"a half deleted session": {edit: write("sessions/x~removed/id", "x"), note: "deletion was not finished"},
		"a session without a journal": {edit: func(t *testing.T, dir string) {
			must(t, os.Remove(files(t, dir, journalDir+"/*.seg")[0]))
		}, note: "has no journal, and 0 events"},
		"an older epoch": {edit: write(journalDir+"/0000000000000001-0000000000000000.seg", "x"), note: "was replaced"},
		"a later epoch": {edit: write(journalDir+"/7000000000000001-0000000000000000.seg", ""),
			found: "which is above", note: "is empty"},
		"an unfinished file":      {edit: write(journalDir+"/session.tmp", "x"), note: "not finished"},
		"an unknown file":         {edit: write("x", "x"), note: "not a file of a data directory"},
		"a file in sessions":      {edit: write("sessions/x", "x"), note: "not a file of a data directory"},
		"a segment set aside":     {edit: write(journalDir+"/0000000000000001-0000000000000000.seg.bad", "x"), found: "was set aside"},
		"a session set aside":     {edit: write("damaged/x/reason", `{"Reason":"because"}`), found: "set aside: because"},
		"no reason":               {edit: write("damaged/x/id", "x"), found: "the reason is unknown"},
		"an unconfirmed session":  {edit: write("sessions/x/opening", ""), note: "never confirmed"},
		"an old unused session":   {edit: write("sessions/x/outbox/log", ""), note: "never confirmed or used"},
		"a session without state": {edit: remove(journalDir + "/session"), found: "has no file session"},
		"another id":              {edit: write(journalDir+"/id", "other"), found: "id of another session"},
		"another state":           {edit: write(journalDir+"/session", `{"id":"other","state":{}}`), found: `has the id "other"`},
		"an old state":            {edit: write(journalDir+"/session", `{"id":"plain-0","state":{}}`)},
		"a state without state":   {edit: write(journalDir+"/session", `{"id":"plain-0"}`), found: "has no state"},
		"a state with a wrong sum": {edit: write(journalDir+"/session", `{"id":"plain-0","sum":"00000000","state":{}}`),
			found: "has the checksum"},
		"a state with more":          {edit: write(journalDir+"/session", `{"id":"plain-0","state":{},"x":1}`), found: `has a member "x"`},
		"no epoch":                   {edit: remove("epoch"), found: "epoch is missing"},
		"a wrong epoch file":         {edit: write("epoch", "x"), found: "has 1 bytes"},
		"usage":                      {edit: write("usage/"+strings.Repeat("a", 32), "{}"), found: "has no state"},
		"a damaged usage":            {edit: write("usage/"+strings.Repeat("a", 32)+".damaged", "{}"), found: "set aside"},
		"an unfinished line":         {edit: file("log", `{"n":1,"prompt":{}`), note: "not finished"},
		"a damaged line":             {edit: file("log", "{\n"), found: "damaged line 1"},
		"a line without use":         {edit: file("log", "{}\n"), found: "neither a prompt nor a state"},
		"a prompt that waits":        {edit: file("log", waits)},
		"a prompt without its text":  {edit: file("log", lacks), found: "lacks prompt 1"},
		"an unanswered prompt":       {edit: file("log", `{"state":{"next":1,"entries":[{"n":1}]}}`+"\n")},
		"a damaged large prompt":     {edit: file("3.prompt", "{"), found: "is not a JSON object"},
		"an outbox in the joint log": {edit: joint(value(2, lacks)), found: "lacks prompt 1"},
		"a later one there":          {edit: joint(value(2, lacks), value(2, waits))},
		"one with a damaged line":    {edit: joint(value(2, "{\n")), found: "journals/0000000000000001-0000000000000000.seg has a damaged line 1"},
		"one of a deleted session":   {edit: joint(jointEntry("gone", 0, 2, 0, []byte(lacks)))},
		"a value of no kind":         {edit: joint(value(4, "{}")), found: "has the value kind 4"},
		"a link to elsewhere": {edit: func(t *testing.T, dir string) {
			must(t, errors.Join(os.Remove(filepath.Join(dir, "epoch")), os.Symlink("/etc/passwd", filepath.Join(dir, "epoch"))))
		}, found: "not a regular file"},
		"a folder that is a pipe": {edit: func(t *testing.T, dir string) {
			must(t, syscall.Mkfifo(filepath.Join(dir, journalDir, "outbox"), 0o600))
		}, found: "it is not a directory"},
		"a folder that is a link": {edit: func(t *testing.T, dir string) {
			must(t, errors.Join(os.RemoveAll(filepath.Join(dir, "usage")), os.Symlink("/etc", filepath.Join(dir, "usage"))))
		}, found: "usage cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			copyDir(t, base, dir)
			if one.edit != nil {
				must(t, os.RemoveAll(filepath.Join(dir, journalDir, "outbox")))
				one.edit(t, dir)
			}
			r := verify(t, dir)
			damage, notes := fmt.Sprint(r.Damage.List), fmt.Sprint(r.Notes.List)
			if (one.found == "") != (r.Damage.Total == 0) || !strings.Contains(damage, one.found) ||
				(one.note == "") != (r.Notes.Total == 0) || !strings.Contains(notes, one.note) {
				t.Errorf("damage %s, want %q; notes %s, want %q", damage, one.found, notes, one.note)
			}
		})
	}
}

func TestNoDirectory(t *testing.T) {
	t.Parallel()
	if _, err := fsck.Check(t.Context(), t.TempDir()); !errors.Is(err, fsck.ErrNoDirectory) {
		t.Errorf("an empty directory: %v", err)
	}
	if _, err := fsck.Check(t.Context(), "/nowhere"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	later := killedDir(t, 1, 1)
	cell, err := segment.OpenCell(segment.OS{}, filepath.Join(later, "format"), false, nil)
	must(t, err)
	must(t, cell.Raise(3))
	if _, err := fsck.Check(t.Context(), later); !errors.Is(err, fsck.ErrLater) || !strings.Contains(err.Error(), "its format is 3") {
		t.Errorf("a directory of a later version: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fsck.Check(ctx, killedDir(t, 1, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Nothing in the directory is changed.
func TestChangesNothing(t *testing.T) {
	t.Parallel()
	dir, before := killedDir(t, sessions, 2), t.TempDir()
	copyDir(t, dir, before)
	verify(t, dir)
	if out, err := exec.Command("diff", "-r", before, dir).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A segment in which every byte could begin a large frame takes time and memory in proportion to its size.
func TestHostileSegment(t *testing.T) {
	t.Parallel()
	checkContent(t, fuzzedSession+fuzzedSegment, bytes.Repeat([]byte{2}, 36<<20))
	checkContent(t, fuzzedSession+"/outbox/log", bytes.Repeat([]byte{2}, 66<<20))
	checkContent(t, fuzzedSession+"/session", append([]byte(`{"id":"`), bytes.Repeat([]byte{'a'}, 1<<20)...))
}
