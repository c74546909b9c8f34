package session

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
)

// TestHistoryIsCut: an epoch begins if the history lacks a message that it had at the last load, or behind which the session came
// to rest, unless readers have got the event of a rewind.
func TestHistoryIsCut(t *testing.T) {
	t.Parallel()
	idle := func(n int) string { return textOf(n, "session.idle", `{}`) }
	for name, tc := range map[string]struct {
		loaded bool     // in between
		since  []string // behind the load
		anew   bool
	}{
		"at its end":                         {anew: true},
		"before the last load":               {loaded: true, anew: true},
		"before the last load, by a call":    {loaded: true, since: []string{textOf(5, "session.snapshot_rewind", `{}`)}},
		"by a call":                          {since: []string{textOf(5, "session.snapshot_rewind", `{}`)}},
		"by a call, and then by another one": {since: []string{textOf(5, "session.snapshot_rewind", `{}`), said(6), idle(7)}, anew: true},
	} {
		f := newStoryteller()
		f.takes(t, said(1), idle(2), said(3), idle(4))
		f.has(said(1), said(3))
		load := func() {
			if _, err := f.s.reconciler.history(t.Context(), f, false); err != nil {
				t.Fatal(err)
			}
		}
		if tc.loaded {
			load()
		}
		f.takes(t, tc.since...)
		f.has(said(1))
		load()
		if anew := f.s.journal.Last().Epoch == 8; anew != tc.anew {
			t.Errorf("%s: an epoch begins: %v", name, anew)
		}
		before := f.s.journal.Last().Epoch
		if load(); f.s.journal.Last().Epoch != before {
			t.Errorf("%s: the next load begins an epoch again", name)
		}
	}
}

// TestCutMessageIsNotForgotten: the CLI had written a message down behind which the session came to rest.
func TestCutMessageIsNotForgotten(t *testing.T) {
	t.Parallel()
	f := newStoryteller()
	f.takes(t, said(1), textOf(2, "session.idle", `{}`), said(3))
	got := f.s.prompts.said(t.Context(), nil, []outbox.Entry{{}})
	if len(got) != 2 || !got[0].History || got[1].History {
		t.Errorf("the messages are %+v", got)
	}
}
