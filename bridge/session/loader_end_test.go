package session

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// TestDeleteUnused: a session that is in use is not deleted, and one that a runtime has leaves it first.
func TestDeleteUnused(t *testing.T) {
	t.Parallel()
	uses := maps.Clone(uses)
	uses["a participant"] = func(t *testing.T, s *Session) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, err := s.participants.add(Joining{Brings: roster.Brings{Grace: time.Hour}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, use := range uses {
		p := &puppet{}
		s := onStock(t, &stock{rt: p})
		s.loader.runtime, s.loader.state = p, Loaded
		use(t, s)
		wantReason(t, s.loader.DeleteUnused(t.Context(), false), fault.SessionBusy)
		if s.loader.State() != Loaded || p.called("session.delete") {
			t.Errorf("with %s: the session is %v, the calls are %v", name, s.loader.State(), p.calls)
		}
	}
	for _, state := range []State{Loaded, Unloaded} {
		p := &puppet{}
		s := onStock(t, &stock{rt: p})
		if s.loader.state = state; state == Loaded {
			s.loader.runtime = p
		}
		if err := s.loader.DeleteUnused(t.Context(), false); err != nil || s.loader.State() != Deleted {
			t.Errorf("in state %v: %v, the session is %v", state, err, s.loader.State())
		}
		if p.called("session.destroy") != (state == Loaded) || p.calls[len(p.calls)-1] != "session.delete" {
			t.Errorf("in state %v: the calls are %v", state, p.calls)
		}
	}
	// The CLI has work in it, or does not answer.
	for name, tc := range map[string]struct {
		answer func(method string) (string, error)
		want   fault.Reason
	}{
		"work": {func(string) (string, error) { return `{"hasActiveWork":true}`, nil }, fault.SessionBusy},
		"lost": {func(string) (string, error) { return "", fault.New(fault.RuntimeLost, "killed") }, fault.RuntimeLost},
	} {
		p := &puppet{answer: tc.answer}
		s := onStock(t, &stock{rt: p})
		s.loader.runtime, s.loader.state = p, Loaded
		err := s.loader.DeleteUnused(t.Context(), false)
		if wantReason(t, err, tc.want); s.loader.State() == Deleted || p.called("session.delete") {
			t.Errorf("%s: the session is %v, the calls are %v", name, s.loader.State(), p.calls)
		}
	}
}

// TestRefusedDelete: that the CLI has no files of a session to delete is no error. Another refusal is one, whatever the bridge
// knows of the history, unless a caller stores the files.
func TestRefusedDelete(t *testing.T) {
	t.Parallel()
	const noFiles, kept = "Session file not found for s1", "Operation not permitted (os error 1)"
	for name, tc := range map[string]struct {
		refused                 string
		history, storedByCaller bool
		deleted                 bool
	}{
		"deleted":                     {history: true, deleted: true},
		"refused":                     {refused: kept, history: true},
		"refused, without history":    {refused: kept},
		"refused, stored by a caller": {refused: kept, history: true, storedByCaller: true, deleted: true},
		"nothing, without history":    {refused: noFiles, deleted: true},
		"nothing left":                {refused: noFiles, history: true, deleted: true},
	} {
		p := &puppet{answer: func(string) (string, error) {
			if tc.refused != "" {
				return `{"success":false,"error":"` + tc.refused + `"}`, nil
			}
			return `{"success":true}`, nil
		}}
		s := onStock(t, &stock{rt: p})
		s.ingester.Known.HasHistory = tc.history
		err := s.loader.Delete(t.Context(), tc.storedByCaller)
		if (err == nil) != tc.deleted || (s.loader.State() == Deleted) != tc.deleted {
			t.Errorf("%s: %v, the session is %v", name, err, s.loader.State())
		}
	}
}

// TestRefusedDeleteOfALoadedSession: if the CLI has closed the session before it refuses to delete it, the session is loaded
// again for what it has to do.
func TestRefusedDeleteOfALoadedSession(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		closed, busy bool
		state        State
	}{
		"closed and idle": {closed: true, state: Unloaded},
		"closed and busy": {closed: true, busy: true, state: Loaded},
		"not closed":      {busy: true, state: Loaded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := &puppet{}
				p.answer = func(method string) (string, error) {
					switch {
					case method == "session.delete":
						return `{"success":false,"error":"session close failed"}`, nil
					case method == "session.metadata.activity" && tc.closed:
						return "", fault.New(fault.SessionNotFound, "closed")
					case method == "session.getMessages":
						return `{"events":[]}`, nil
					}
					return `{}`, nil
				}
				s := onStock(t, &stock{rt: p})
				s.loader.runtime, s.loader.state = p, Loaded
				s.ingester.Known.HasHistory = true
				if tc.busy {
					uses["a turn"](t, s)
				}
				wantReason(t, s.loader.Delete(t.Context(), false), fault.SessionRefused)
				synctest.Wait()
				if s.loader.State() != tc.state || s.Turns().Running() == tc.closed && tc.busy || p.called("session.resume") != (tc.closed && tc.busy) {
					t.Errorf("the session is %v after %v; a turn runs: %v", s.loader.State(), p.calls, s.Turns().Running())
				}
			})
		})
	}
}

// TestEndIsTold: readers of a session learn that its use has ended, and how.
func TestEndIsTold(t *testing.T) {
	t.Parallel()
	for want, end := range map[bridgev1.CloseReason]func(*fixture) error{
		bridgev1.CloseReason_CLOSE_REASON_DISCONNECTED: func(r *fixture) error { _, err := r.s.loader.Disconnect(r.ctx, true); return err },
		bridgev1.CloseReason_CLOSE_REASON_DELETED:      func(r *fixture) error { return r.s.loader.Delete(r.ctx, false) },
	} {
		r := newFixture(t, fakecli.Script{})
		r.open(Opening{})
		if err := end(r); err != nil {
			t.Fatal(err)
		}
		told := r.await("the end", func(rec *journal.Record) bool { _, is := rec.Note.(Ended); return is })
		if got := told.Note.(Ended).Reason; got != want {
			t.Errorf("told is %v, want %v", got, want)
		}
		if left, err := r.s.loader.Disconnect(r.ctx, true); err != nil || !left {
			t.Errorf("disconnected again: %v, %v", left, err)
		}
	}
}

// TestNoMessageAmidTheEnd: a message that the CLI has not replied to is before the end of its session, if the reply comes soon,
// and then later ones wait for the end. The CLI could take them up in the session's next life.
func TestNoMessageAmidTheEnd(t *testing.T) {
	t.Parallel()
	for method, end := range map[string]func(*Session, context.Context) error{
		"session.destroy": func(s *Session, ctx context.Context) error { _, err := s.loader.Disconnect(ctx, true); return err },
		"session.delete":  func(s *Session, ctx context.Context) error { return s.loader.Delete(ctx, true) },
	} {
		for took, before := range map[time.Duration]bool{passing / 2: true, passing * 2: false} {
			synctest.Test(t, func(t *testing.T) {
				p := &puppet{answer: func(m string) (string, error) {
					switch m {
					case "session.send":
						time.Sleep(took)
					case method:
						time.Sleep(time.Minute)
					}
					return `{"messageId":"m1"}`, nil
				}}
				s := onStock(t, &stock{rt: p})
				s.loader.runtime, s.loader.state = p, Loaded
				first, behind := make(chan error, 1), make(chan error, 1)
				s.sender.Start(t.Context(), message("under way"), func(_ Sent, err error) { first <- err })
				synctest.Wait()
				ended := make(chan error, 1)
				go func() { ended <- end(s, t.Context()) }()
				time.Sleep(passing / 4)
				if p.called(method) {
					t.Errorf("%s is called before the reply to the message", method)
				}
				time.Sleep(passing / 2)
				if p.called(method) != before {
					t.Errorf("%s is called: %v, after %v", method, p.called(method), passing/4*3)
				}
				s.sender.Start(t.Context(), message("behind"), func(_ Sent, err error) { behind <- err })
				if err := <-first; err != nil {
					t.Errorf("the message that was under way: %v", err)
				}
				if err := <-ended; err != nil {
					t.Errorf("%s: %v", method, err)
				}
				if err := <-behind; before && (fault.ReasonOf(err) != fault.SessionNotFound || p.calls[len(p.calls)-1] != method) {
					t.Errorf("the message behind the end: %v; the calls are %v", err, p.calls)
				}
			})
		}
	}
}

// TestWantedAfterALoss: a session that is in use is to be loaded again when its runtime has ended.
func TestWantedAfterALoss(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		use  func(*testing.T, *Session)
		want bool
	}{
		"idle":       {use: func(*testing.T, *Session) {}},
		"unloaded":   {use: func(_ *testing.T, s *Session) { uses["a turn"](nil, s); s.loader.state = Unloaded }},
		"moved":      {use: func(_ *testing.T, s *Session) { uses["a turn"](nil, s); s.loader.runtime = &puppet{} }},
		"a turn":     {use: uses["a turn"], want: true},
		"a callback": {use: uses["a callback"], want: true},
		"attended": {use: func(t *testing.T, s *Session) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if _, err := s.participants.add(Joining{Brings: roster.Brings{Grace: time.Hour}}); err != nil {
				t.Fatal(err)
			}
		}, want: true},
		"a reader": {use: func(t *testing.T, s *Session) {
			if _, err := s.journal.NewReader(journal.Position{}, true, func() {}); err != nil {
				t.Fatal(err)
			}
		}, want: true},
		"a prompt": {use: func(t *testing.T, s *Session) {
			if _, _, err := s.prompts.add(message("p").outboxForm(message("p").Params), journal.Position{}); err != nil {
				t.Fatal(err)
			}
		}, want: true},
	} {
		p := &puppet{}
		s := onPuppet(t, p)
		tc.use(t, s)
		if got := s.loader.RuntimeLost(p, errRefused); got != tc.want {
			t.Errorf("%s: it is to be loaded again: %v", name, got)
		}
	}
}

// TestEndLeavesNothing: a session whose use has ended has no prompts and no replaced headers.
func TestEndLeavesNothing(t *testing.T) {
	t.Parallel()
	p := &puppet{}
	s := onStock(t, &stock{rt: p})
	s.loader.runtime, s.loader.state = p, Loaded
	s.sender.replacedIn = p
	if _, _, err := s.prompts.add(outbox.Prompt{Params: []byte(`{}`)}, journal.Position{}); err != nil {
		t.Fatal(err)
	}
	if ended, err := s.loader.Disconnect(t.Context(), true); !ended || err != nil {
		t.Fatal(ended, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.prompts.outbox.Empty() || s.sender.headersReplaced() {
		t.Errorf("the prompts %v are left; headers are replaced: %v", s.prompts.outbox.Entries(), s.sender.headersReplaced())
	}
}
