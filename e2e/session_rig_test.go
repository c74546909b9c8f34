package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// testSession is a session with what tests ask of it.
type testSession struct {
	*copilot.Session
	rig *rig
}

// ask says something and returns the agent's last message of a turn that completed.
func (s *testSession) ask(text string, opts ...copilot.SendOption) string {
	s.rig.t.Helper()
	out := s.turn(text, opts...)
	if err := out.Err(); err != nil {
		s.rig.t.Fatalf("turn %q: %v", text, err)
	}
	return out.GetText()
}

// turn says something and returns how the turn ended, however that was.
func (s *testSession) turn(text string, opts ...copilot.SendOption) *copilot.Outcome {
	s.rig.t.Helper()
	out, err := s.SendAndWait(s.rig.ctx, text, opts...)
	if err != nil {
		s.rig.t.Fatalf("send %q: %v", text, err)
	}
	return out
}

// send says something and does not wait for the turn's end.
func (s *testSession) send(text string, opts ...copilot.SendOption) *bridgev1.SendResponse {
	s.rig.t.Helper()
	resp, err := s.Send(s.rig.ctx, text, opts...)
	if err != nil {
		s.rig.t.Fatalf("send %q: %v", text, err)
	}
	return resp
}

// waitFor waits for the first event of a type, from the session's first event on.
func (s *testSession) waitFor(eventType string) *bridgev1.Event {
	s.rig.t.Helper()
	return s.waitUntil(eventType, func(ev *bridgev1.Event) bool { return ev.GetEvent().GetType() == eventType })
}

// waitAfter waits for the first event of a type after a position.
func (s *testSession) waitAfter(pos *bridgev1.Position, eventType string) *bridgev1.Event {
	s.rig.t.Helper()
	return s.waitUntil(eventType, func(ev *bridgev1.Event) bool {
		return ev.GetEvent().GetType() == eventType && copilot.ComparePositions(ev.GetPosition(), pos) > 0
	})
}

// waitUntil waits for the first event that fits, from the session's first event on. what
// is said when it does not come.
func (s *testSession) waitUntil(what string, fits func(*bridgev1.Event) bool) *bridgev1.Event {
	s.rig.t.Helper()
	opts := []copilot.EventsOption{copilot.FromBeginning(), copilot.WithFilter(&bridgev1.EventFilter{IncludeHeavy: true})}
	for ev, err := range s.Events(s.rig.ctx, opts...) {
		if err != nil {
			s.rig.t.Fatalf("waiting for %s: %v", what, err)
		}
		if fits(ev) {
			return ev
		}
	}
	s.rig.t.Fatalf("waiting for %s: the events ended", what)
	return nil
}

// history is what the journal has now, all types included.
func (s *testSession) history() []*bridgev1.Event {
	s.rig.t.Helper()
	var events []*bridgev1.Event
	for ev, err := range s.History(s.rig.ctx, copilot.WithFilter(&bridgev1.EventFilter{IncludeHeavy: true})) {
		if err != nil {
			s.rig.t.Fatalf("history: %v", err)
		}
		events = append(events, ev)
	}
	return events
}

// types are the types of events, in order.
func types(events []*bridgev1.Event) []string {
	all := make([]string, len(events))
	for i, ev := range events {
		all[i] = ev.GetEvent().GetType()
	}
	return all
}

// recorded is an event in the CLI's own record.
type recorded struct {
	Type string          `json:"type"`
	ID   string          `json:"id"`
	Data json.RawMessage `json:"data"`
}

// record is the CLI's own record of the session: the oracle for what really happened.
// It is nil while there is none.
func (s *testSession) record() []recorded {
	s.rig.t.Helper()
	return readRecord(s.rig.t, filepath.Join(s.rig.host.home, "session-state", s.ID(), "events.jsonl"))
}

func readRecord(t *testing.T, path string) []recorded {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	var all []recorded
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var one recorded
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			break // the CLI is writing it just now
		}
		all = append(all, one)
	}
	return all
}

// recordedTypes are the types in the CLI's own record.
func (s *testSession) recordedTypes() []string {
	s.rig.t.Helper()
	var all []string
	for _, one := range s.record() {
		all = append(all, one.Type)
	}
	return all
}

// wantOrder checks that types come in an order, others between them or not.
func wantOrder(t *testing.T, got []string, want ...string) {
	t.Helper()
	rest := got
	for _, one := range want {
		i := slices.Index(rest, one)
		if i < 0 {
			t.Errorf("types %q do not have %q in order: no %q there", got, want, one)
			return
		}
		rest = rest[i+1:]
	}
}

// wantError checks the code and the reason of an error.
func wantError(t *testing.T, err error, code codes.Code, reason bridgev1.ErrorReason) *copilot.Error {
	t.Helper()
	var e *copilot.Error
	if !errors.As(copilot.FromError(err), &e) {
		t.Fatalf("error is %v, want %s %s", err, code, reason)
	}
	if e.Code != code || e.Reason != reason {
		t.Fatalf("error is %v, want %s %s", err, code, reason)
	}
	return e
}
