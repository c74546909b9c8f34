package journal

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// A burst wakes its readers once, at its end. A reader that is not waiting sees all events at once.
func TestBatch(t *testing.T) {
	t.Parallel()
	j := New(Config{Epoch: epoch})
	woken := 0
	r := reader(t, j, Position{}, true, func() { woken++ })
	read(t, r)
	if !j.BeginBatch() || j.BeginBatch() {
		t.Error("not just the first gathers")
	}
	for n := range 3 {
		j.Append(ephemeral(n))
	}
	if woken != 0 {
		t.Errorf("woken %d times in the burst", woken)
	}
	if records, _ := reader(t, j, Position{}, true, nothing).Next(nil, 1000); len(records) != 3 {
		t.Errorf("who is awake sees %d events, want 3", len(records))
	}
	j.EndBatch()
	if got := read(t, r); woken != 1 || len(got) != 3 {
		t.Errorf("woken %d times, for %q", woken, got)
	}
	if !j.BeginBatch() {
		t.Error("a second batch does not begin")
	}
	j.EndBatch()
	if woken != 1 {
		t.Error("woken for nothing")
	}
	j.Append(ephemeral(3))
	if woken != 2 {
		t.Error("not woken after the burst")
	}
}

// The writer writes the events of a burst after its end.
func TestGatherWrites(t *testing.T) {
	t.Parallel()
	l := begin(t, &faultfs.FS{}, WriterConfig{})
	defer l.close()
	j, woken := l.j, make(chan struct{}, 1)
	r := reader(t, j, Position{}, true, Waking(woken))
	read(t, r)
	l.awaitShown()
	if !j.BeginBatch() {
		t.Fatal("the batch does not begin")
	}
	for n := range 3 {
		j.Append(durable(n))
	}
	j.EndBatch()
	<-woken
	l.awaitShown()
	if got := read(t, r); len(got) != 3 {
		t.Errorf("read %q", got)
	}
}
