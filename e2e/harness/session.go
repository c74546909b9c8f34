package harness

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// TestSession is a session with what tests ask of it.
type TestSession struct {
	*copilot.Session
	Fixture *Fixture
}

// Ask says something and returns the agent's last message of a turn that completed.
func (s *TestSession) Ask(text string, opts ...copilot.SendOption) string {
	s.Fixture.T.Helper()
	out := s.Turn(text, opts...)
	if err := out.Err(); err != nil {
		s.Fixture.T.Fatalf("turn %q: %v", text, err)
	}
	return out.Text()
}

// Turn says something and returns how the turn ended, however that was.
func (s *TestSession) Turn(text string, opts ...copilot.SendOption) *copilot.Outcome {
	s.Fixture.T.Helper()
	out, err := s.SendAndWait(s.Fixture.Ctx, text, opts...)
	if err != nil {
		s.Fixture.T.Fatalf("send %q: %v", text, err)
	}
	return out
}

// Send says something and does not wait for the turn's end.
func (s *TestSession) Submit(text string, opts ...copilot.SendOption) *bridgev1.SendResponse {
	s.Fixture.T.Helper()
	resp, err := s.Send(s.Fixture.Ctx, text, opts...)
	if err != nil {
		s.Fixture.T.Fatalf("send %q: %v", text, err)
	}
	return resp
}

// WaitFor waits for the first event of a type, from the session's first event on.
func (s *TestSession) WaitFor(eventType string) *bridgev1.Event {
	s.Fixture.T.Helper()
	return s.WaitUntil(eventType, func(ev *bridgev1.Event) bool { return ev.GetEvent().GetEventType() == eventType })
}

// WaitAfter waits for the first event of a type after a position.
func (s *TestSession) WaitAfter(pos *bridgev1.Position, eventType string) *bridgev1.Event {
	s.Fixture.T.Helper()
	return s.WaitUntil(eventType, func(ev *bridgev1.Event) bool {
		return ev.GetEvent().GetEventType() == eventType && copilot.ComparePositions(ev.GetPosition(), pos) > 0
	})
}

// WaitUntil waits for the first event that fits, from the session's first event on. what describes it in the failure.
func (s *TestSession) WaitUntil(what string, fits func(*bridgev1.Event) bool) *bridgev1.Event {
	s.Fixture.T.Helper()
	opts := []copilot.EventsOption{copilot.FromBeginning(),
		copilot.WithFilter(&bridgev1.EventFilter{IncludeLarge: true})}
	for ev, err := range s.Events(s.Fixture.Ctx, opts...) {
		if err != nil {
			s.Fixture.T.Fatalf("waiting for %s: %v", what, err)
		}
		if fits(ev) {
			return ev
		}
	}
	s.Fixture.T.Fatalf("waiting for %s: the events ended", what)
	return nil
}

// History is what the journal has now, all types included.
func (s *TestSession) Recorded() []*bridgev1.Event {
	s.Fixture.T.Helper()
	var events []*bridgev1.Event
	for ev, err := range s.History(s.Fixture.Ctx, copilot.WithFilter(&bridgev1.EventFilter{IncludeLarge: true})) {
		if err != nil {
			s.Fixture.T.Fatalf("history: %v", err)
		}
		events = append(events, ev)
	}
	return events
}

// Types are the types of events, in order.
func Types(events []*bridgev1.Event) []string {
	all := make([]string, len(events))
	for i, ev := range events {
		all[i] = ev.GetEvent().GetEventType()
	}
	return all
}

// Recorded is an event in the CLI's own record.
type Recorded struct {
	Type string          `json:"type"`
	ID   string          `json:"id"`
	Data json.RawMessage `json:"data"`
}

// Record is the CLI's own record of the session: the oracle for what really happened.
// It is nil while there is none.
func (s *TestSession) Record() []Recorded {
	s.Fixture.T.Helper()
	return ReadRecord(s.Fixture.T, filepath.Join(s.Fixture.Host.Home, "session-state", s.ID(), "events.jsonl"))
}

// ReadRecord reads a record; it is nil if there is no file.
func ReadRecord(t *testing.T, path string) []Recorded {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	var all []Recorded
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var one Recorded
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			break // the CLI is writing it just now
		}
		all = append(all, one)
	}
	return all
}

// RecordedTypes returns the types in the CLI's own record, as soon as it has one of each of some types: the CLI may
// send an event before it writes it.
func (s *TestSession) RecordedTypes(awaited ...string) []string {
	s.Fixture.T.Helper()
	var all []string
	s.Fixture.Eventually("the CLI's record of "+strings.Join(awaited, ", "), func() bool {
		all = nil
		for _, one := range s.Record() {
			all = append(all, one.Type)
		}
		return !slices.ContainsFunc(awaited, func(t string) bool { return !slices.Contains(all, t) })
	})
	return all
}

// WantOrder checks that types come in an order, others between them or not.
func WantOrder(t *testing.T, got []string, want ...string) {
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

// WantError checks the code and the reason of an error.
func WantError(t *testing.T, err error, code codes.Code, reason bridgev1.ErrorReason) *copilot.Error {
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
