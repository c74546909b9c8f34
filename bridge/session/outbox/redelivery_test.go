package outbox

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// A delivery that cannot be stored does not begin if another process may continue the session: that process would
// deliver the prompt, too. It begins when the storage is back. A process with a disk of its own does not wait.
func TestUnstoredDelivery(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"cluster": true, "data directory": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := onDisk()
			b := opened(t, disk)
			n := put(t, b, "one")
			accepted(t, b, n, []string{"m1"})
			b.Owe(n, 0)
			if err := b.Flush(); err != nil {
				t.Fatal(err)
			}
			before := b.Entries()
			away := errors.New("no route to the storage")
			disk.set(away, nil)
			e, ok, err := b.BeginRedelivery(journal.Position{Epoch: 2, Seq: 9}, time.Now(), shared)
			if !shared {
				if err != nil || !ok || e.Deliveries != 2 {
					t.Errorf("the delivery: %+v, %v, %v", e, ok, err)
				}
				return
			}
			if ok || !errors.Is(err, ErrUnstored) || !errors.Is(err, away) {
				t.Errorf("the delivery: %+v, %v, %v", e, ok, err)
			}
			if after := b.Entries(); !reflect.DeepEqual(after, before) {
				t.Errorf("the prompt is\n%+v\nand was\n%+v", after, before)
			}
			disk.set(nil, nil)
			e, ok, err = b.BeginRedelivery(journal.Position{Epoch: 2, Seq: 9}, time.Now(), shared)
			if err != nil || !ok || e.Deliveries != 2 {
				t.Errorf("the delivery to a storage that is back: %+v, %v, %v", e, ok, err)
			}
			if e := opened(t, disk).Entries()[0]; e.Owed || e.Deliveries != 2 || e.Before.Epoch != 2 {
				t.Errorf("the next process has %+v", e)
			}
		})
	}
}

// TestLargePromptIsDelivered: a prompt that has a file of its own is read for its delivery. If it cannot be read, it is owed
// still.
func TestLargePromptIsDelivered(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("long ", MaxInLog/4)
	for _, readable := range []bool{true, false} {
		disk := onDisk()
		b := opened(t, disk)
		n := put(t, b, text)
		accepted(t, b, n, []string{"m1"})
		if b = opened(t, disk); b.Entries()[0].Prompt().Params != nil {
			t.Fatal("the prompt is in memory")
		}
		b.Owe(n, 0)
		if !readable {
			names, _ := disk.List()
			for _, name := range slices.DeleteFunc(names, func(name string) bool { return name == logFile }) {
				_ = disk.Remove(name)
			}
		}
		e, ok, err := b.BeginRedelivery(journal.Position{Epoch: 2, Seq: 9}, time.Now(), false)
		if !ok || (err == nil) != readable || b.Owes() == readable {
			t.Errorf("readable %v: %v, %v, owed %v", readable, ok, err, b.Owes())
		}
		if got := strings.Contains(string(e.Prompt().Params), text); got != readable {
			t.Errorf("readable %v: the delivery has the prompt: %v", readable, got)
		}
	}
}

// TestPartlyDelivered: of several messages in one prompt those are delivered again that the CLI does not have, and both
// deliveries are known by their ids.
func TestPartlyDelivered(t *testing.T) {
	t.Parallel()
	for done, want := range map[int]string{
		0: `{"messages":[{"prompt":"a"},{"prompt":"b"}]}`, 1: `{"messages":[{"prompt":"b"}]}`, 2: `{"messages":[]}`,
		3: `{"messages":[{"prompt":"a"},{"prompt":"b"}]}`,
	} {
		b := opened(t, onDisk())
		p := Prompt{Method: methodMessages, Params: json.RawMessage(`{"messages":[{"prompt":"a"},{"prompt":"b"}]}`)}
		n, _, err := b.Add(p, keepAll, journal.Position{Epoch: 1, Seq: 3})
		if err != nil {
			t.Fatal(err)
		}
		accepted(t, b, n, []string{"m1", "m2"})
		b.Owe(n, done)
		e, ok, err := b.BeginRedelivery(journal.Position{Epoch: 2, Seq: 9}, time.Now(), false)
		if !ok || err != nil || string(e.Prompt().Params) != want {
			t.Errorf("without %d: %s, %v, %v", done, e.Prompt().Params, ok, err)
		}
		if e.IDs != nil || !slices.Equal(e.Was, []string{"m1", "m2"}) || e.Before.Seq != 9 || e.AnsweredAt != (journal.Position{}) {
			t.Errorf("without %d: the delivery is %+v", done, e)
		}
	}
}
