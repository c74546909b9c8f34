package outbox

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// A continuation comes before owed prompts, also in the next process of the bridge. A killed process leaves it as well.
func TestContinuation(t *testing.T) {
	t.Parallel()
	disk := &memory{files: map[string][]byte{}}
	b, err := Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	add := func(text string) uint64 {
		n, _, err := b.Add(Prompt{Params: json.RawMessage(`{"prompt":"` + text + `"}`)}, keepAll, journal.Position{})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	taken, waiting := add("taken"), add("waiting")
	accepted(t, b, taken, []string{"m1"})
	accepted(t, b, waiting, []string{"m2"})
	b.Owe(waiting, 0)
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	text := json.RawMessage(`{"prompt":"go on"}`)
	own, err := b.AddContinuation(Prompt{Params: text, Continues: 2}, journal.Position{})
	if err != nil {
		t.Fatal(err)
	}
	numbers := func(b *Outbox) (out []uint64) {
		for _, e := range b.Entries() {
			out = append(out, e.N)
		}
		return out
	}
	if got, want := numbers(b), []uint64{taken, own, waiting}; !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
	killed, err := Open(&memory{files: maps.Clone(disk.files)})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := numbers(killed), []uint64{taken, own, waiting}; !killed.Continues() || !slices.Equal(got, want) {
		t.Errorf("a process that was killed leaves %v, want %v", got, want)
	}
	next, err := Open(&memory{files: maps.Clone(disk.files)})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := numbers(next), []uint64{taken, own, waiting}; !slices.Equal(got, want) {
		t.Errorf("in the next process the order is %v, want %v", got, want)
	}
	e, ok, err := next.BeginRedelivery(journal.Position{}, time.Now(), true)
	if err != nil || !ok || e.N != own || e.Deliveries != 1 || e.Prompt().Continues != 2 {
		t.Errorf("the first delivery is of %+v, %v, %v", e, ok, err)
	}
}

// TestLostContinuation: a continuation that no process has answered is none that readers know.
func TestLostContinuation(t *testing.T) {
	t.Parallel()
	b := opened(t, onDisk())
	b.Lose(1, Note{Continues: 1})
	b.Moved(Note{As: []string{"a"}, Continues: 2})
	if got := b.Continuations(); len(got) != 1 || got[0].Continues != 2 {
		t.Errorf("the continuations are %v", got)
	}
}
