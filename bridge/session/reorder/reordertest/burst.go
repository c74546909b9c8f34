// Package reordertest makes bursts of events for tests of what puts them in order.
package reordertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// Burst makes the events of one: for each piece of text its size, then the text.
type Burst struct {
	At     []time.Time // by piece
	Pieces []string
	Totals []int
}

// New returns a burst with four pieces a millisecond. leaps are pieces before which time passes.
func New(pieces int, leaps map[int]time.Duration) *Burst {
	b := &Burst{}
	now, total := time.Date(2031, 5, 31, 23, 59, 59, 0, time.UTC), 0
	for i := range pieces {
		now = now.Add(leaps[i])
		if i%4 == 0 {
			now = now.Add(time.Millisecond)
		}
		text := fmt.Sprint(i, []string{" ", "\n", "\"", "é "}[i%7%4])
		total += len(text)
		b.At, b.Pieces, b.Totals = append(b.At, now), append(b.Pieces, text), append(b.Totals, total)
	}
	return b
}

// Event is the n-th: the size of piece n/2, or its text.
func (b *Burst) Event(n int) *journal.Record {
	kind, data := "assistant.message_delta", fmt.Sprintf(`{"messageId":"m","deltaContent":%q}`, b.Pieces[n/2])
	if n%2 == 0 {
		kind, data = "assistant.streaming_delta", fmt.Sprintf(`{"totalResponseSizeBytes":%d}`, b.Totals[n/2])
	}
	return EventAt(kind, data, fmt.Sprint("e", n), b.At[n/2], true)
}

// EventAt is an event as the CLI writes it.
func EventAt(kind, data, id string, at time.Time, ephemeral bool) *journal.Record {
	text := fmt.Sprintf(`{"type":%q,"data":%s,"ephemeral":%t,"id":%q,"timestamp":%q,"parentId":null}`,
		kind, data, ephemeral, id, at.Format("2006-01-02T15:04:05.000Z"))
	return &journal.Record{Type: kind, ID: journal.ParseID([]byte(id)), Ephemeral: ephemeral, JSON: []byte(text)}
}

// ID is an event's id as text.
func ID(rec *journal.Record) string {
	_, rest, _ := strings.Cut(string(rec.JSON), `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// Run lists the events from one up to another.
func Run(from, to int) (list []int) {
	for n := from; n < to; n++ {
		list = append(list, n)
	}
	return list
}

// Names are the ids of events.
func Names(events []int) (ids []string) {
	for _, n := range events {
		ids = append(ids, fmt.Sprint("e", n))
	}
	return ids
}

// Durable is the message that ends a response.
func Durable(id string, at time.Time) *journal.Record {
	return EventAt("assistant.message", `{"content":"all"}`, id, at, false)
}

// Equal fails the test unless got equals want, and reports the first difference.
func Equal(t testing.TB, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%d events, want %d; from the %dth on %q, want %q", len(got), len(want), i, got[min(i, len(got)):min(i+6, len(got))], want[min(i, len(want)):min(i+6, len(want))])
		}
	}
}
