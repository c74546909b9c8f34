package session

import (
	"slices"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// TestHandOver: a session at rest leaves this server, saved when nothing changes it any more. One that is in use stays.
func TestHandOver(t *testing.T) {
	t.Parallel()
	attended := func(t *testing.T, s *Session) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, err := s.participants.add(Joining{Brings: roster.Brings{Grace: time.Hour}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		state State
		use   func(*testing.T, *Session)
		fresh bool // used now
		quiet bool
		reads bool // a reader follows it
		want  bool
	}{
		"loaded":                       {state: Loaded, want: true},
		"unloaded":                     {state: Unloaded, want: true},
		"disconnected":                 {state: Disconnected, want: true},
		"used now":                     {state: Loaded, fresh: true, want: true},
		"quiet":                        {state: Loaded, quiet: true, want: true},
		"quiet, used now":              {state: Loaded, fresh: true, quiet: true},
		"attended":                     {state: Loaded, use: attended, want: true},
		"quiet, attended":              {state: Loaded, use: attended, quiet: true},
		"quiet, unloaded and attended": {state: Unloaded, use: attended, quiet: true},
		"read":                         {state: Loaded, reads: true, want: true},
		"quiet, read":                  {state: Loaded, reads: true, quiet: true},
		"with a call":                  {state: Loaded, use: uses["a call"]},
		"unloaded, with a call":        {state: Unloaded, use: uses["a call"]},
		"with a turn":                  {state: Loaded, use: uses["a turn"]},
		"unloaded, with a callback":    {state: Unloaded, use: uses["a callback"]},
		"being created":                {state: Creating},
	} {
		p := &puppet{}
		s := onPuppet(t, p)
		if tc.use != nil {
			tc.use(t, s)
		}
		if s.loader.state = tc.state; tc.state != Loaded {
			s.loader.runtime = nil
		}
		if !tc.fresh {
			s.loader.usedAt = time.Now().Add(-time.Hour)
			s.turns.machine.Heard(s.loader.usedAt)
		}
		var reader *journal.Reader
		if tc.reads {
			reader, _ = s.journal.NewReader(journal.Position{}, true, func() {}) // of the beginning
		}
		saved := 0
		got, err := s.loader.HandOver(t.Context(), tc.quiet, func() error {
			saved++
			if reason := fault.ReasonOf(s.loader.Usable()); reason != fault.SessionUnavailable {
				t.Errorf("%s: while it is saved, a call gets %v", name, reason)
			}
			return nil
		})
		if got != tc.want || err != nil || saved > 0 != tc.want || s.loader.State() == Deleted != tc.want || s.loader.handingOver != tc.want {
			t.Errorf("%s: %v, %v, saved %d times, the session is %v, leaving %v", name, got, err, saved, s.loader.State(), s.loader.handingOver)
		}
		if tc.reads {
			records, _ := reader.Next(nil, 1<<20)
			if told := slices.ContainsFunc(records, func(rec *journal.Record) bool {
				return rec.Note == Ended{bridgev1.CloseReason_CLOSE_REASON_DRAINING}
			}); told != tc.want {
				t.Errorf("%s: its reader is told: %v", name, told)
			}
		}
		if p.called("session.destroy") != (tc.want && tc.state == Loaded) {
			t.Errorf("%s: the calls are %v", name, p.calls)
		}
	}
}

// TestEvict: only a disconnected session that no call changes is dropped.
func TestEvict(t *testing.T) {
	t.Parallel()
	for _, state := range []State{Creating, Loaded, Unloaded, Disconnected, Deleted} {
		s := onPuppet(t, &puppet{})
		s.loader.state = state
		release, err := s.loader.lifecycle.release, s.loader.lifecycle.acquire(t.Context())
		if err != nil || s.loader.Evict() || s.loader.State() != state {
			t.Errorf("%v: it is dropped during a call, %v", state, err)
		}
		release()
		if got := s.loader.Evict(); got != (state == Disconnected) || got != (s.loader.State() == Deleted && state != Deleted) {
			t.Errorf("%v: dropped %v, the session is %v", state, got, s.loader.State())
		}
		if err := s.loader.lifecycle.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
