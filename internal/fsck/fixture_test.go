package fsck_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	"github.com/copilot-grpc/copilot-grpc/internal/fsck"
)

// sessions are those of a directory.
const sessions = 12

// bridge is the storage of a bridge with some sessions.
type bridge struct {
	store    *store.Store
	journals []*journal.Journal
	boxes    []*outbox.Outbox
	requests backend.Requests
	events   int
	rounds   int
	scale    int // of the sizes of events
}

// key is the key of session i.
func key(i int) string {
	return fmt.Sprint([]string{"plain-", "acme.owned-", "Capital-"}[i%3], i)
}

func openBridge(dir string, sessions int) *bridge {
	s, err := store.Open(store.Config{Dir: dir, Journals: journal.WriterConfig{
		SegmentBytes: 8 << 10, Interval: time.Hour, // without syncs, journals begin to share the joint log
	}})
	check(err)
	b := &bridge{store: s, scale: 1}
	_, err = s.Sessions()
	check(err)
	b.requests, _, err = s.Requests()
	check(err)
	for i := range sessions {
		epoch, err := s.NextEpoch()
		check(err)
		d, _, err := s.Journal(key(i), epoch)
		check(err)
		b.journals = append(b.journals, journal.New(journal.Config{Epoch: epoch, Log: d}))
		box, err := outbox.Open(s.Outbox(key(i)))
		check(err)
		b.boxes = append(b.boxes, box)
		b.save(i)
	}
	return b
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// save saves the state of a session.
func (b *bridge) save(i int) {
	check(b.store.Save(backend.State{Key: key(i), Data: fmt.Appendf(nil, `{"session":{"n":%d}}`, b.events)}))
}

// round adds events to all sessions, a prompt to one, and requests.
func (b *bridge) round(events int) {
	for range events {
		for _, j := range b.journals {
			b.events++
			id := fmt.Sprintf("%d-%d", os.Getpid(), b.events)
			j.Append(&journal.Record{Type: "assistant.message", ID: journal.ParseID([]byte(id)),
				JSON: fmt.Appendf(nil, `{"id":%q,"text":%q}`, id, strings.Repeat("x", b.scale*(b.events%700)))})
			j.Append(&journal.Record{Type: "assistant.message_delta", Ephemeral: true, JSON: []byte(`{}`)})
		}
	}
	b.settle()
	b.rounds++
	i := b.rounds % len(b.boxes)
	params := json.RawMessage(fmt.Sprintf(`{"prompt":%q}`, strings.Repeat("p", b.rounds%3*40<<10)))
	n, _, err := b.boxes[i].AddLater(outbox.Prompt{Params: params, AskedAt: time.Now()},
		func(p json.RawMessage) (json.RawMessage, []string) { return p, nil }, b.journals[i].Last())
	if err == nil {
		b.boxes[i].Accepted(n, []string{fmt.Sprint("m", b.events)}, journal.Position{}, func(_, _ bool, err error) { check(err) })
	} else {
		b.boxes[i].Clear(func(*outbox.Entry) bool { return true })
		check(b.boxes[i].Flush())
	}
	b.save(i)
	check(b.requests.Add(backend.Request{
		Key: backend.Key{Tenant: "acme", Operation: "Send\x00s", ID: fmt.Sprint(b.events)}, Sum: make([]byte, 32),
		Expires: time.Now().Add(time.Hour), Type: "t", Answer: make([]byte, 100),
	}))
	check(b.store.SaveUsage("acme", fmt.Appendf(nil, `[{"n":%d}]`, b.events)))
}

// settle waits until all events are written.
func (b *bridge) settle() {
	for _, j := range b.journals {
		check(j.AwaitShown(context.Background()))
	}
}

// close closes the directory in order.
func (b *bridge) close() {
	for _, j := range b.journals {
		check(j.Close(context.Background()))
	}
	for _, box := range b.boxes {
		box.Close()
	}
	check(b.requests.Close())
	check(b.store.Close())
}

// writeForever writes to a directory until the process is killed.
func writeForever(dir string) {
	b := openBridge(dir, sessions)
	b.scale = 50 // a write of many pages can end in its middle
	for {
		b.round(5)
		fmt.Println(b.events)
	}
}

// killedDir is what a killed bridge leaves: a copy of its files while it is open.
func killedDir(t *testing.T, sessions, rounds int) string {
	t.Helper()
	dir, killed := t.TempDir(), t.TempDir()
	b := openBridge(dir, sessions)
	for range rounds {
		b.round(5)
	}
	copyDir(t, dir, killed)
	b.close()
	return killed
}

// closedDir is what a bridge leaves that is closed in order.
func closedDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	b := openBridge(dir, sessions)
	for range 5 {
		b.round(30)
	}
	b.close()
	return dir
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// verify checks a directory.
func verify(t *testing.T, dir string) *fsck.Report {
	t.Helper()
	r, err := fsck.Check(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// files returns the files in a directory that match a pattern.
func files(t *testing.T, dir, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("no file %s: %v", pattern, err)
	}
	return found
}
