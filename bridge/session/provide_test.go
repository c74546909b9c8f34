package session

import (
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// A participant without a connection provides nothing: the CLI does not load the session before a provider is
// connected.
func TestKeptPlaceProvidesNothing(t *testing.T) {
	t.Parallel()
	p := &puppet{answer: func(method string) (string, error) {
		if method == "session.getMessages" {
			return `{"events":[]}`, nil
		}
		return `{"items":[]}`, nil
	}}
	s := onStock(t, &stock{rt: p})
	s.settings.RequireHandlers(callback.FSReadFile)
	join := Joining{Brings: roster.Brings{Handling: config.Handling{Methods: []string{callback.FSReadFile}}, Grace: time.Hour}}
	s.mu.Lock()
	place, err := s.participants.add(join)
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	s.participants.Lost(place.Participant, nil)
	_, err = s.loader.Load(t.Context())
	wantReason(t, err, fault.HandlerMissing)
	if p.called("session.resume") {
		t.Error("the CLI was asked to load the session")
	}
	join.Token = place.Participant.Token
	if back, err := s.participants.Join(t.Context(), join); err != nil || !back.Returned {
		t.Fatalf("back in its place: %v, %v", back.Returned, err)
	}
	if s.loader.State() != Loaded {
		t.Errorf("with its files there again the session is in state %v", s.loader.State())
	}
}

// A CLI that leaves lying what it asked in an earlier process is not waited for.
func TestLeftLying(t *testing.T) {
	t.Parallel()
	const asked = `{"type":"external_tool.requested","id":"00000000-0000-4000-8000-000000000001","data":{"requestId":"t1","toolCallId":"c1","toolName":"work"}}`
	for name, test := range map[string]struct {
		version string
		need    string
		waits   bool
	}{
		"files elsewhere":                  {"1.0.81", callback.FSReadFile, false},
		"files elsewhere, the next one":    {"1.0.82", callback.FSReadFile, false},
		"files elsewhere, one that does":   {"1.0.92", callback.FSReadFile, true},
		"its own files":                    {"1.0.81", callback.ModelRequestStart, true},
		"files elsewhere, a later version": {"1.0.102", callback.FSReadFile, true},
	} {
		for _, known := range []bool{true, false} { // it was pending before, or is of an earlier life
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := &puppet{version: test.version, answer: func(method string) (string, error) {
					switch method {
					case "session.getMessages":
						return `{"events":[` + asked + `]}`, nil
					case "session.tools.listPendingRequests":
						return waitsFor("t1"), nil
					}
					return waitsFor(), nil
				}}
				s := onStock(t, &stock{rt: p})
				s.settings.State.Tools, s.settings.State.Handling.Methods = tools("work"), []string{test.need}
				s.settings.RequireHandlers(test.need)
				if known {
					rec, err := event.Parse([]byte(asked))
					if err != nil {
						t.Fatal(err)
					}
					s.Ingest(rec, time.Now())
				}
				if _, err := s.loader.Load(t.Context()); err != nil {
					t.Fatal(err)
				}
				if n := s.callbacks.Registry().Len(); (n > 0) != test.waits || s.turns.Running() != test.waits {
					t.Errorf("%d wait, a turn runs: %v, want %v", n, s.turns.Running(), test.waits)
				}
			})
		}
	}
}
