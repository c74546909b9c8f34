package copilot_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestTokenFromFileIsReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	source := copilot.TokenFromFile(file)
	if _, err := source(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v", err)
	}
	for _, want := range []string{"one", "the second"} {
		if err := os.WriteFile(file, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := source(t.Context()); got != want || err != nil {
			t.Errorf("token = %q, %v", got, err)
		}
	}
}

func TestReplacedTokenContinuesStreams(t *testing.T) {
	t.Parallel()
	var token atomic.Value
	token.Store("old")
	source := func(context.Context) (string, error) { return token.Load().(string), nil }
	f, c := newFake(t, copilot.WithTokenSource(source))
	sent := func(a *attach) string {
		md, _ := metadata.FromIncomingContext(a.out.Context())
		return strings.Join(md.Get("authorization"), ",")
	}
	s, a := session(t, f, c, copilot.SessionOptions{})
	if got := sent(a); got != "Bearer old" {
		t.Errorf("authorization = %q", got)
	}
	token.Store("new")
	a.end <- failure(codes.Unauthenticated, "UNAUTHENTICATED", "the token has expired")
	a = f.attached(t)
	if got := sent(a); got != "Bearer new" || a.start.GetParticipantToken() != "secret" {
		t.Errorf("authorization = %q, start = %v", got, a.start)
	}
	// The same token again is a refusal, and final.
	a.end <- failure(codes.Unauthenticated, "UNAUTHENTICATED", "unknown token")
	select {
	case <-s.Done():
	case <-testContext(t).Done():
		t.Error("the participation goes on")
	}
}

func TestServersOutsideOfTheWindowAreRefused(t *testing.T) {
	t.Parallel()
	for version, fits := range map[string]bool{
		"0.0.9": false, "v0.1.0": true, "0.99.3-rc.1": true, "1.0.0": false, "2.4": false, "b270ae0a": true,
		"dev": true,
	} {
		err := copilot.CheckVersion(version)
		var incompatible *copilot.IncompatibleError
		if fits != (err == nil) || !fits && (!errors.As(err, &incompatible) || incompatible.Version != version) {
			t.Errorf("%s: %v", version, err)
		}
	}
}

func TestWatchSessionsReconnects(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	f.watches = make(chan *stream[bridgev1.WatchSessionsRequest, bridgev1.WatchSessionsResponse])
	changes := make(chan bridgev1.SessionChange, 8)
	over := make(chan error, 1)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	go func() {
		for change, err := range c.WatchSessions(ctx) {
			if err != nil {
				over <- err
				return
			}
			changes <- change.GetChange()
		}
	}()
	current := bridgev1.SessionChange_SESSION_CHANGE_CURRENT
	for range 2 {
		w := next(t, f.watches)
		w.send(&bridgev1.WatchSessionsResponse{Change: bridgev1.SessionChange_SESSION_CHANGE_HEARTBEAT},
			&bridgev1.WatchSessionsResponse{Change: current})
		if got := receive(t, changes, "change"); got != current {
			t.Errorf("change = %v", got)
		}
		w.end <- failure(codes.Unavailable, "", "cut")
	}
	w := next(t, f.watches)
	w.end <- failure(codes.PermissionDenied, "FORBIDDEN", "no")
	if err := receive(t, over, "end"); !copilot.IsReason(err, bridgev1.ErrorReason_ERROR_REASON_FORBIDDEN) {
		t.Errorf("err = %v", err)
	}
}
