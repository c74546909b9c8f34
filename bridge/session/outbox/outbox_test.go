package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// memory is a disk in memory.
type memory struct {
	mu    sync.Mutex
	files map[string][]byte
	fail  error
	hang  chan struct{} // writes wait for it
	// unreadable is a file whose Read fails with errUnreadable; unlisted is the error of List.
	unreadable string
	unlisted   error
}

var errUnreadable = errors.New("the disk is away")

func (m *memory) List() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.files)), m.unlisted
}

func (m *memory) Read(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name == m.unreadable {
		return nil, errUnreadable
	}
	if text, ok := m.files[name]; ok {
		return text, nil
	}
	return nil, fs.ErrNotExist
}

func (m *memory) Write(name string, data []byte) error {
	m.mu.Lock()
	hang, fail := m.hang, m.fail
	m.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if fail != nil {
		return fail
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = data
	return nil
}

// logFile has the state.
const logFile = "log"

func (m *memory) Load() ([]byte, error) { return m.Read(logFile) }

func (m *memory) Save(state []byte) error { return m.Write(logFile, state) }

func (m *memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, name)
	return nil
}

func (m *memory) set(fail error, hang chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail, m.hang = fail, hang
}

func opened(t *testing.T, disk *memory) *Outbox {
	t.Helper()
	b, err := Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func onDisk() *memory { return &memory{files: map[string][]byte{}} }

// keepAll keeps everything on disk; hidden keeps the headers away from it.
func keepAll(p json.RawMessage) (json.RawMessage, []string) { return p, nil }

func hidden(json.RawMessage) (json.RawMessage, []string) {
	return json.RawMessage(`{"prompt":"p"}`), []string{"requestHeaders"}
}

func put(t *testing.T, b *Outbox, text string) uint64 {
	t.Helper()
	params, _ := json.Marshal(map[string]string{"prompt": text})
	n, inMemory, err := b.Add(Prompt{Params: params, Request: "r " + text, AskedAt: time.Now()}, keepAll, journal.Position{Epoch: 1, Seq: 3})
	if err != nil || inMemory {
		t.Fatalf("%q is taken up: in memory %v, %v", text, inMemory, err)
	}
	return n
}

// noted notes the CLI's answer to a prompt, and waits until it is stored.
func noted(b *Outbox, n uint64, ids []string) (durable, again bool, err error) {
	done := make(chan struct{})
	go b.Accepted(n, ids, journal.Position{}, func(d, a bool, e error) {
		durable, again, err = d, a, e
		close(done)
	})
	<-done
	return durable, again, err
}

// accepted is noted without an error.
func accepted(t *testing.T, b *Outbox, n uint64, ids []string) {
	t.Helper()
	if _, _, err := noted(b, n, ids); err != nil {
		t.Errorf("the answer %q: %v", ids, err)
	}
}

// A crash at any moment leaves what was acknowledged, as it was.
func TestLives(t *testing.T) {
	t.Parallel()
	disk := onDisk()
	b := opened(t, disk)
	first, second := put(t, b, "one"), put(t, b, "two")
	if durable, again, _ := noted(b, first, []string{"m1"}); !durable || again {
		t.Errorf("the answer is noted: %v, %v", durable, again)
	}
	b = opened(t, disk)
	entries := b.Entries()
	if len(entries) != 2 || !entries[0].Acknowledged() || entries[1].Acknowledged() || entries[0].Before.Seq != 3 {
		t.Fatalf("the next life has %+v", entries)
	}
	if id, _, ok := b.AnswerTo("r one"); !ok || id != "m1" {
		t.Errorf("the request was answered %q, %v", id, ok)
	}
	if _, _, ok := b.AnswerTo("r two"); ok {
		t.Error("the other request was answered")
	}
	b.Owe(first, 0)
	finish(t, b, second)
	b = opened(t, disk)
	if !b.Owes() {
		t.Fatal("the third life does not know what is owed")
	}
	e, ok, err := b.BeginRedelivery(journal.Position{Epoch: 2, Seq: 9}, time.Now(), true)
	if !ok || err != nil || e.Deliveries != 2 || !strings.Contains(string(e.Prompt().Params), "one") {
		t.Fatalf("given again is %+v, %v", e, err)
	}
	b = opened(t, disk)
	if e := b.Entries()[0]; e.Owed || !e.Acknowledged() || e.Before.Epoch != 2 {
		t.Fatalf("the fourth life has %+v", e)
	}
	accepted(t, b, first, []string{"m2"})
	b.Moved(Note{IDs: []string{"m1"}, As: []string{"m2"}})
	b.Finish(first)
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	b = opened(t, disk)
	if b.MovedTo("m1") != "m2" || !b.Empty() {
		t.Errorf("m1 is %q now", b.MovedTo("m1"))
	}
	if names, _ := disk.List(); !slices.Equal(names, []string{logFile}) {
		t.Errorf("on disk are %q", names)
	}
}

// A lost prompt stays lost, and readers learn of the loss also after restarts.
func TestLost(t *testing.T) {
	t.Parallel()
	disk := onDisk()
	b := opened(t, disk)
	n := put(t, b, "one")
	accepted(t, b, n, []string{"m1"})
	b.Lose(n, Note{At: journal.Position{Epoch: 1, Seq: 5}, IDs: []string{"m1"}, Text: "why"})
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	b = opened(t, disk)
	if why, ok := b.LostBecause("m1"); !ok || why != "why" {
		t.Errorf("m1 was lost because %q, %v", why, ok)
	}
	if _, ok := b.LostBecause(""); ok {
		t.Error("a message without an id was lost")
	}
	told := 0
	b.Renumber(func(n Note) journal.Position { told++; return journal.Position{Epoch: 2, Seq: n.At.Seq + 1} })
	b.Renumber(func(n Note) journal.Position {
		if told++; n.At != (journal.Position{Epoch: 2, Seq: 6}) {
			t.Errorf("the note is at %v", n.At)
		}
		return n.At
	})
	if told != 2 {
		t.Errorf("%d notes were told", told)
	}
}

// Secrets are in memory only: another process cannot give the prompt to the CLI.
func TestSecrets(t *testing.T) {
	t.Parallel()
	disk := onDisk()
	b := opened(t, disk)
	n, _, err := b.Add(Prompt{Params: json.RawMessage(`{"prompt":"p","requestHeaders":{"A":"s3cret"}}`)}, hidden, journal.Position{})
	if err != nil {
		t.Fatal(err)
	}
	accepted(t, b, n, []string{"m1"})
	for name, text := range disk.files {
		if strings.Contains(string(text), "s3cret") {
			t.Errorf("%s has the secret", name)
		}
	}
	if e := b.Entries()[0]; e.Obstacle() != "" {
		t.Errorf("this process cannot give it again: %s", e.Obstacle())
	}
	if e := opened(t, disk).Entries()[0]; e.Obstacle() == "" {
		t.Error("the next process can give it again")
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	b, _ := Open(nil)
	for range MaxEntries {
		if _, _, err := b.Add(Prompt{Params: json.RawMessage(`{}`)}, keepAll, journal.Position{}); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := b.Add(Prompt{Params: json.RawMessage(`{}`)}, keepAll, journal.Position{})
	if fault.ReasonOf(err) != fault.LimitExceeded {
		t.Errorf("one too many: %v", err)
	}
	finish(t, b, 1)
	if _, _, err := b.Add(Prompt{Params: json.RawMessage(`{}`)}, keepAll, journal.Position{}); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
	b, _ = Open(nil)
	large := Prompt{Params: make(json.RawMessage, MaxBytes+1)}
	if _, _, err := b.Add(large, keepAll, journal.Position{}); err != nil {
		t.Errorf("one always fits: %v", err)
	}
	if _, _, err := b.Add(Prompt{Params: json.RawMessage(`{}`)}, keepAll, journal.Position{}); fault.ReasonOf(err) != fault.LimitExceeded {
		t.Errorf("another: %v", err)
	}
}

// finish removes a prompt, also from the disk.
func finish(t *testing.T, b *Outbox, n uint64) {
	t.Helper()
	if !b.Finish(n) {
		t.Errorf("the prompt %d is not there", n)
	}
	if err := b.Flush(); err != nil {
		t.Error(err)
	}
}

// A prompt that is stored with the CLI's answer is on disk when the answer is, in one write, and not before.
func TestAddLater(t *testing.T) {
	t.Parallel()
	disk := &counting{memory: onDisk(), calls: map[string]int{}}
	b, err := Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	later := func(text string) uint64 {
		t.Helper()
		params, _ := json.Marshal(map[string]string{"prompt": text})
		n, inMemory, err := b.AddLater(Prompt{Params: params, Request: "r " + text}, hidden, journal.Position{Epoch: 1})
		if err != nil || inMemory {
			t.Fatalf("%q is added: %v, %v", text, inMemory, err)
		}
		return n
	}
	stored := func() []Entry { return opened(t, disk.memory).Entries() }
	first, second := later("first"), later("second")
	if writes := disk.calls["save"]; writes != 0 || len(b.Entries()) != 2 {
		t.Errorf("before an answer there are %d writes, and the entries %+v", writes, b.Entries())
	}
	if durable, again, err := noted(b, first, []string{"m1"}); !durable || again || err != nil || disk.calls["save"] != 1 {
		t.Errorf("the answer: %v, %v, %v, in %d writes", durable, again, err, disk.calls["save"])
	}
	entries := stored()
	if len(entries) != 2 || !entries[0].Acknowledged() || entries[1].Acknowledged() || entries[0].Obstacle() == "" { // its secrets are not on disk
		t.Errorf("the next process has %+v", entries)
	}
	finish(t, b, later("rejected"))
	if entries := stored(); len(entries) != 2 {
		t.Errorf("the next process has a prompt that was rejected: %+v", entries)
	}
	// A turn can end before the answer is noted.
	b.Retire(second, journal.Position{Epoch: 1, Seq: 9})
	accepted(t, b, second, []string{"m2"})
	if entries := stored(); len(entries) != 2 || entries[1].prompt.Request != "r second" {
		t.Errorf("the next process has %+v", entries)
	}
	full := errors.New("full")
	disk.set(full, nil)
	third := later("third")
	if durable, _, err := noted(b, third, []string{"m3"}); durable || err != nil || !errors.Is(b.Problem(), full) {
		t.Errorf("on a full disk the answer is noted: %v, %v", durable, err)
	}
	disk.set(nil, nil)
	if err := b.Flush(); err != nil || len(stored()) != 3 {
		t.Errorf("when there is room again: %v, %+v", err, stored())
	}
	text := json.RawMessage(`{"prompt":"` + strings.Repeat("x", MaxInLog) + `"}`)
	large, inMemory, err := b.AddLater(Prompt{Params: text}, keepAll, journal.Position{Epoch: 1})
	if err != nil || inMemory || !slices.Contains(slices.Collect(maps.Keys(disk.files)), promptFile(large)) {
		t.Errorf("a large one: %v, %v", inMemory, err)
	}
}

// A prompt whose turn has ended stays on disk until the journal has the turn, whatever else is written.
func TestRetire(t *testing.T) {
	t.Parallel()
	disk := onDisk()
	b := opened(t, disk)
	first := put(t, b, strings.Repeat("x", MaxInLog+1))
	accepted(t, b, first, []string{"m1"})
	b.Retire(first, journal.Position{Epoch: 1, Seq: 5})
	second := put(t, b, "second")
	accepted(t, b, second, []string{"m2"})
	b.Retire(second, journal.Position{Epoch: 1, Seq: 8})
	if entries := b.Entries(); len(entries) != 0 {
		t.Errorf("the prompts count as unfinished: %+v", entries)
	}
	stored := func() (ids []string) {
		for _, e := range opened(t, disk).Entries() {
			ids = append(ids, e.IDs...)
		}
		return ids
	}
	if ids := stored(); !slices.Equal(ids, []string{"m1", "m2"}) {
		t.Errorf("the disk has the prompts %q", ids)
	}
	if !b.TurnsStored(journal.Position{Epoch: 1, Seq: 7}) {
		t.Error("no more prompts are retired")
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	if ids := stored(); !slices.Equal(ids, []string{"m2"}) {
		t.Errorf("after the release of one the disk has the prompts %q", ids)
	}
	if b.TurnsStored(journal.Position{Epoch: 2}) {
		t.Error("prompts of an earlier epoch are retired")
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	if names, _ := disk.List(); len(stored()) > 0 || len(names) != 1 {
		t.Errorf("after the release of all the disk has the prompts %q and the files %q", stored(), names)
	}
}

// An owner that was frozen tells no caller that a prompt is accepted, and gives the CLI none: another one has the
// session.
func TestAnotherOwner(t *testing.T) {
	t.Parallel()
	disk := onDisk()
	b := opened(t, disk)
	sent, owed := put(t, b, "sent"), put(t, b, "owed")
	accepted(t, b, owed, []string{"m1"})
	b.Owe(owed, 0)
	disk.set(fmt.Errorf("the log: %w", backend.ErrStale), nil)
	refused := func(what string, err error) {
		t.Helper()
		if fault.ReasonOf(err) != fault.SessionUnavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, _, err := b.Add(Prompt{Params: json.RawMessage(`{"prompt":"p"}`)}, keepAll, journal.Position{})
	refused("a prompt", err)
	_, err = b.AddContinuation(Prompt{Params: json.RawMessage(`{}`), Continues: 1}, journal.Position{})
	refused("a continuation", err)
	if entries := b.Entries(); len(entries) != 2 {
		t.Errorf("the refused prompts stay: %+v", entries)
	}
	_, _, err = noted(b, sent, []string{"m2"})
	refused("an answer", err)
	_, _, err = b.BeginRedelivery(journal.Position{}, time.Now(), true)
	refused("another delivery", err)
}

// The history was compared while the answer was awaited: the prompt is owed as soon as that comes.
func TestPassed(t *testing.T) {
	t.Parallel()
	b, _ := Open(nil)
	n, _, _ := b.Add(Prompt{Params: json.RawMessage(`{"prompt":"p"}`)}, keepAll, journal.Position{})
	b.Pass(n)
	if _, again, _ := noted(b, n, []string{"m1"}); !again || !b.Owes() {
		t.Error("it is not owed")
	}
}

// TestMovedIsNoted: readers of a later process learn that a message was sent again.
func TestMovedIsNoted(t *testing.T) {
	t.Parallel()
	disk := onDisk()
	b := opened(t, disk)
	b.Moved(Note{At: journal.Position{Epoch: 1, Seq: 2}, IDs: []string{"a"}, As: []string{"b"}})
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	var notes []Note
	after := opened(t, disk)
	after.Renumber(func(n Note) journal.Position {
		notes = append(notes, n)
		return n.At
	})
	if len(notes) != 1 || !slices.Equal(notes[0].As, []string{"b"}) || after.MovedTo("a") != "b" {
		t.Errorf("the notes are %v, the message moved to %q", notes, after.MovedTo("a"))
	}
}

// TestContinuations: the notes of messages that continue a turn are those that say so, and have no earlier message.
func TestContinuations(t *testing.T) {
	t.Parallel()
	b := opened(t, onDisk())
	for n, note := range []Note{
		{As: []string{"a"}}, {As: []string{"b"}, Continues: 1}, {IDs: []string{"b"}, As: []string{"c"}, Continues: 1}, {Continues: 1},
	} {
		note.At = journal.Position{Epoch: 1, Seq: uint64(n)}
		b.Moved(note)
	}
	if got := b.Continuations(); len(got) != 1 || got[0].As[0] != "b" {
		t.Errorf("%+v", got)
	}
}

// TestFinishedPromptsTakeNoRoom: a prompt whose turn has ended does not count.
func TestFinishedPromptsTakeNoRoom(t *testing.T) {
	t.Parallel()
	b := opened(t, onDisk())
	n := put(t, b, "p")
	b.End(n)
	b.Finish(n)
	if b.bytes != 0 {
		t.Errorf("%d bytes are taken", b.bytes)
	}
}
