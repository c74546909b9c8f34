package copilot_test

import (
	"context"
	"fmt"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// What streams of sessions return: the title is the name, or else the summary.
func TestSessionInfo(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	got := make(chan string)
	go func() {
		defer close(got)
		for change, err := range c.WatchSessions(testContext(t), nil) {
			if err != nil {
				return
			}
			s := change.Session
			got <- fmt.Sprintf("%s: %s is %s, %q, %q, %t", change.Kind, s.ID, s.State, s.Title, s.Model, s.Proto.GetTurnRunning())
		}
	}()
	w := next(t, f.watches)
	for want, session := range map[string]*bridgev1.Session{
		`updated: a is loaded, "n", "gpt", true`: {
			SessionId: "a", State: bridgev1.SessionState_SESSION_STATE_LOADED, Name: "n", Summary: "s", ModelId: "gpt",
			TurnRunning: true,
		},
		`updated: b is stored, "s", "", false`: {
			SessionId: "b", State: bridgev1.SessionState_SESSION_STATE_STORED, Summary: "s",
		},
		`updated: c is 99, "", "", false`:         {SessionId: "c", State: 99}, // of a newer server
		`updated:  is unspecified, "", "", false`: nil,
	} {
		w.send(&bridgev1.WatchSessionsResponse{Change: bridgev1.SessionChange_SESSION_CHANGE_UPDATED, Session: session})
		if text := receive(t, got, "change"); text != want {
			t.Errorf("got %s, want %s", text, want)
		}
	}
}

// Calls that fail return no session.
func TestNoSessionInfoWithAnError(t *testing.T) {
	t.Parallel()
	_, c := newFake(t)
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	for name, get := range map[string]func() (*copilot.SessionInfo, error){
		"client":  func() (*copilot.SessionInfo, error) { return c.GetSession(ctx, "s1") },
		"session": func() (*copilot.SessionInfo, error) { return c.Session("s1").Get(ctx) },
	} {
		if info, err := get(); err == nil || info != nil {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}
