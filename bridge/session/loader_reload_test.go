package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	sessionevent "github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/reorder/reordertest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// The bridge cannot know whether the CLI has a history of a session: the CLI may have accepted a message and
// ended before it replied.
func TestHistoryNobodyWasToldOf(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{})
	r.open(Opening{})
	r.send(message("one")).Waiter.Wait(t.Context(), 0)
	r.crash()
	// The session as it would be, had the runtime ended before its first event was read.
	r.s.mu.Lock()
	r.s.ingester.Known.HasHistory, r.s.ingester.Known.CompletedTurn = false, false
	r.s.mu.Unlock()
	if _, err := r.s.loader.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(r.received("session.create")); n != 0 {
		t.Error("the session was made anew, and its history is lost")
	}
	if n := len(r.received("session.resume")); n != 1 {
		t.Errorf("it was resumed %d times", n)
	}
}

// TestHistoryAndLiveEvents: events since the resume are in the history, too, and keep their places; a callback
// among them is requested once.
func TestHistoryAndLiveEvents(t *testing.T) {
	t.Parallel()
	event := func(n int, eventType, data string) string {
		return fmt.Sprintf(`{"type":%q,"id":"00000000-0000-4000-8000-%012d","data":%s}`, eventType, n, data)
	}
	old, resumed := event(1, "session.start", `{}`), event(2, "session.resume", `{}`)
	asked := event(3, callback.PermissionRequested, permissionAsked)
	var s *Session
	p := &puppet{}
	p.answer = func(method string) (string, error) {
		switch method {
		case "session.resume":
			for _, live := range []string{event(9, "pending_messages.modified", `{}`), resumed, asked} {
				rec, err := sessionevent.Parse([]byte(live))
				if err != nil {
					return "", err
				}
				s.Ingest(rec, time.Now())
			}
		case "session.getMessages":
			return `{"events":[` + old + `,` + resumed + `,` + asked + `]}`, nil
		case "session.permissions.pendingRequests":
			return waitsFor("p1"), nil
		}
		return `{}`, nil
	}
	s = onStock(t, &stock{rt: p})
	s.settings.State.Handling.Methods = []string{callback.PermissionRequested}
	r, err := s.journal.NewReader(journal.Position{}, true, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := s.loader.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	asks := 0
	for records, gap := r.Next(nil, 1<<20); len(records) > 0 || gap != nil; records, gap = r.Next(nil, 1<<20) {
		for _, rec := range records {
			if _, ok := rec.Note.(Requested); ok {
				asks++
			} else if rec.Note == nil {
				got = append(got, rec.Type)
			}
		}
	}
	want := []string{"session.start", "pending_messages.modified", "session.resume", callback.PermissionRequested}
	if !slices.Equal(got, want) {
		t.Errorf("the journal has %q, want %q", got, want)
	}
	if list := s.callbacks.Registry().List(); asks != 1 || len(list) != 1 || list[0].Pos.Seq != uint64(len(want)) {
		t.Errorf("asked %d times, and %+v wait", asks, list)
	}
}

// TestHeldEventsAtEnd: events that are held back to be put in order reach the journal when no more
// can come.
func TestHeldEventsAtEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *Session){
		"end of session":  func(s *Session) { s.loader.end(Disconnected) },
		"loss of runtime": func(s *Session) { s.loader.state = Loaded; s.loader.RuntimeLost(nil, errors.New("gone")) },
	} {
		s, b := played(), reordertest.New(5000, nil)
		for _, n := range slices.Concat(reordertest.Run(0, 10), []int{0}, reordertest.Run(10, 12), reordertest.Run(100, 110)) {
			s.Ingest(b.Event(n), time.Now())
		}
		held := s.journal.Last().Seq
		end(s)
		var events uint64
		s.journal.Each(func(*journal.Record) bool { events++; return true })
		if held != 12 || events != 22 {
			t.Errorf("%s: %d events, then %d; want 12 and 22", name, held, events)
		}
	}
}

// A runtime that stops accepting sessions after it was chosen does not fail the call: another one is chosen.
func TestRuntimeIsChosenAgain(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{})
	r.draining.Store(true)
	r.open(Opening{})
	r.send(message("hi"))
	r.awaitEvent("session.idle")
	for name, call := range map[string]func() error{
		"load": func() error { _, err := r.s.loader.Load(t.Context()); return err },
		"resume": func() error {
			if _, err := r.s.loader.Disconnect(t.Context(), true); err != nil {
				return err
			}
			_, err := r.s.loader.Resume(t.Context(), Opening{})
			return err
		},
	} {
		r.crash()
		r.draining.Store(true)
		if err := call(); err != nil || r.draining.Load() || r.s.loader.State() != Loaded {
			t.Errorf("%s: %v, the session is %v", name, err, r.s.loader.State())
		}
	}
}

// TestShutdownIsFinal: no load after Shutdown continues the work that it ended, one by a server that was started since
// included. A resume that asks for the work has it.
func TestShutdownIsFinal(t *testing.T) {
	t.Parallel()
	shut := func(t *testing.T) *fixture {
		r := newFixture(t, fakecli.Script{})
		r.open(Opening{})
		r.send(message("one")).Waiter.Wait(t.Context(), 0)
		if _, _, err := r.s.loader.Shutdown(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for name, load := range map[string]struct {
		by   func(*fixture) error
		want string
	}{
		"load": {func(r *fixture) error { _, err := r.s.loader.Load(r.ctx); return err }, `"continuePendingWork":false`},
		"saved": {func(r *fixture) error {
			if err := r.s.Restore(savedText(r.s, nil, nil), nil, nil, nil); err != nil {
				return err
			}
			_, err := r.s.loader.Load(r.ctx)
			return err
		}, `"continuePendingWork":false`},
		"resume": {func(r *fixture) error {
			_, err := r.s.loader.Resume(r.ctx, Opening{ContinuePending: true})
			return err
		}, `"continuePendingWork":true`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := shut(t)
			if err := load.by(r); err != nil {
				t.Fatal(err)
			}
			if n := len(r.received("session.resume")); n != 1 {
				t.Errorf("the CLI resumed the session %d times", n)
			}
			has(t, r.last("session.resume"), load.want)
			lacks(t, r.last("session.resume"), `"disableResume":true`)
			r.crash()
			if _, err := r.s.loader.Load(r.ctx); err != nil {
				t.Fatal(err)
			}
			has(t, r.last("session.resume"), load.want) // the CLI would ask again what has ended
			r.send(message("next")).Waiter.Wait(t.Context(), 0)
			r.crash()
			if _, err := r.s.loader.Load(r.ctx); err != nil {
				t.Fatal(err)
			}
			has(t, r.last("session.resume"), `"continuePendingWork":true`)
		})
	}
}

// attentive is a CLI process whose calls end with their contexts.
type attentive struct{ *puppet }

func (a attentive) Call(ctx context.Context, method string, params []byte, opts ...rpcconn.CallOption) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return a.puppet.Call(ctx, method, params, opts...)
}

// TestLoadOutlivesItsCaller: once the CLI has loaded the session, the rest of the load does not end with the call that began
// it: no later load makes up for it.
func TestLoadOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	p := &puppet{}
	p.answer = func(method string) (string, error) {
		if method == listPermissions {
			cancel()
		}
		return `{}`, nil
	}
	s := onStock(t, &stock{rt: attentive{p}})
	if _, err := s.loader.Load(ctx); err != nil {
		t.Error(err)
	}
	if !slices.Contains(p.calls, listTools) {
		t.Errorf("the calls are %v", p.calls)
	}
}

// TestCreatedAgain: a session that the CLI has no history of is created again. What it was asked before, the new one does not
// ask.
func TestCreatedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		completed bool // the session has a turn that has completed, so that there must be a history
		fails     fault.Reason
		created   bool
	}{
		"nothing is written":    {fails: fault.SessionNotFound, created: true},
		"the history is lost":   {completed: true, fails: fault.SessionNotFound},
		"it cannot be loaded":   {fails: fault.SessionRefused},
		"the history is loaded": {},
	} {
		p := &puppet{answer: func(method string) (string, error) {
			switch method {
			case "session.resume":
				if tc.fails != fault.None {
					return "", fault.New(tc.fails, "no")
				}
			case "session.getMessages":
				return `{"events":[]}`, nil
			case listPermissions:
				return waitsFor("p1"), nil
			}
			return waitsFor(), nil
		}}
		s := onStock(t, &stock{rt: p})
		s.ingester.Known.CompletedTurn = tc.completed
		s.settings.State.Handling.Methods = []string{callback.PermissionRequested}
		s.play(callback.PermissionRequested, permissionAsked)
		if s.callbacks.Registry().Len() != 1 {
			t.Fatal("nothing is asked")
		}
		_, err := s.loader.Load(t.Context())
		if fails := tc.fails != fault.None && !tc.created; (err != nil) != fails || p.called("session.create") != tc.created {
			t.Errorf("%s: %v, the calls are %v", name, err, p.calls)
		}
		if asks := s.callbacks.Registry().Len() > 0; asks == tc.created {
			t.Errorf("%s: a callback is pending: %v", name, asks)
		}
	}
}
