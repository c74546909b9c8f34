package copilot_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestWatchSessionsReconnects(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	changes := make(chan string)
	go func() {
		defer close(changes)
		for change, err := range c.WatchSessions(testContext(t), nil) {
			if err != nil {
				changes <- err.Error()
				return
			}
			changes <- string(change.Kind) + " " + change.Session.ID
		}
	}()
	change := func(kind bridgev1.SessionChange) *bridgev1.WatchSessionsResponse {
		return &bridgev1.WatchSessionsResponse{Change: kind, Session: &bridgev1.Session{SessionId: "s1"}}
	}
	current := change(bridgev1.SessionChange_SESSION_CHANGE_CURRENT)
	w := next(t, f.watches)
	w.send(current, change(bridgev1.SessionChange_SESSION_CHANGE_HEARTBEAT))
	w.send(change(bridgev1.SessionChange_SESSION_CHANGE_DELETED))
	for _, want := range []string{"current s1", "deleted s1"} {
		if got := receive(t, changes, "change"); got != want {
			t.Errorf("change %q, want %q", got, want)
		}
	}
	for _, end := range []error{nil, failure(codes.Unavailable, "", "cut")} {
		w.end <- end
		w = next(t, f.watches)
		w.send(current)
		if got := receive(t, changes, "change"); got != "current s1" {
			t.Errorf("after %v: %q", end, got)
		}
	}
	w.end <- failure(codes.PermissionDenied, "PERMISSION_DENIED", "not you")
	if got := receive(t, changes, "end"); !strings.Contains(got, "not you") {
		t.Errorf("end: %s", got)
	}
}

func TestWatchSessionsEnds(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	ended := make(chan error, 1)
	go func() {
		for _, err := range c.WatchSessions(testContext(t), nil) {
			ended <- err
			return
		}
		ended <- nil
	}()
	next(t, f.watches)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, ended, "end"); err != nil {
		t.Errorf("closed: %v", err)
	}
	f, c = newFake(t)
	go func() {
		for change, err := range c.WatchSessions(testContext(t), nil) {
			if err == nil && change.Session.ID == "s1" {
				ended <- errors.New("broken off")
				break
			}
		}
	}()
	w := next(t, f.watches)
	w.send(&bridgev1.WatchSessionsResponse{Session: &bridgev1.Session{SessionId: "s1"}})
	<-w.out.Context().Done()
	if err := receive(t, ended, "end"); err.Error() != "broken off" {
		t.Error(err)
	}
}

func TestClientReads(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	info, err := c.GetSession(testContext(t), "s1")
	if err != nil || info.ID != "s1" {
		t.Errorf("session %v, %v", info, err)
	}
	<-f.unary
	if last, err := c.LastSessionID(testContext(t)); err != nil || last != "last" {
		t.Errorf("last session %q, %v", last, err)
	}
	var ids []string
	for cb, err := range c.Pending(testContext(t)) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, cb.ID)
	}
	if got := strings.Join(ids, " "); got != "1 2 3" {
		t.Errorf("pending = %q", got)
	}
}
