package bridge_test

import (
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// sharedDirectory shows no sessions and no requests at the start, as that of a cluster.
type sharedDirectory struct {
	bridge.Directory

	known []backend.Request
}

// Sessions implements Directory.
func (*sharedDirectory) Sessions() (map[string]json.RawMessage, error) { return nil, nil }

// Requests implements Directory.
func (d *sharedDirectory) Requests() (log backend.Requests, _ []backend.Request, err error) {
	log, d.known, err = d.Directory.Requests()
	return log, nil, err
}

// A session of another server is there after Load, with its remembered requests; calls at the same time load it once.
func TestLoad(t *testing.T) {
	t.Parallel()
	k := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored)
	k.Create("s1")
	request := &bridgev1.SendAndWaitRequest{
		RequestId: "once", SessionId: "s1", Prompt: &bridgev1.Prompt{Text: "hello"},
	}
	first, err := k.Turns.SendAndWait(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	directory := new(sharedDirectory)
	next := k.Restart(func(c *bridgetest.Options) { directory.Directory, c.Directory = c.Directory, directory })
	if next.Store().Get("s1") != nil {
		t.Fatal("the session was loaded at the start")
	}
	away := errors.New("the directory is away")
	found, err := next.Load(t.Context(), "s1", func() ([]backend.Request, error) { return nil, away })
	if found || !errors.Is(err, away) || next.Store().Get("s1") != nil {
		t.Errorf("a session whose requests are not known: %t, %v, loaded %t", found, err, next.Store().Get("s1") != nil)
	}
	var asked atomic.Int32
	requests := func() ([]backend.Request, error) {
		asked.Add(1)
		return directory.known, nil
	}
	if found, err := next.Load(t.Context(), "other", requests); found || err != nil {
		t.Errorf("a session that is not stored: %t, %v", found, err)
	}
	var loads sync.WaitGroup
	for range 4 {
		loads.Go(func() {
			if found, err := next.Load(t.Context(), "s1", requests); !found || err != nil {
				t.Errorf("Load: %t, %v", found, err)
			}
		})
	}
	loads.Wait()
	if n := asked.Load(); n != 1 || next.Store().Get("s1") == nil {
		t.Errorf("the session was loaded %d times", n)
	}
	again, err := next.Turns.SendAndWait(t.Context(), request)
	if err != nil || again.GetMessageId() != first.GetMessageId() {
		t.Errorf("the repeated request got %v, %v, the first %v", again, err, first)
	}
}

// HandOver drops a session that is at rest, as it was saved, and ends its streams so that their readers continue
// elsewhere. Calls that look for the session wait until it has been given away. A session in use stays.
func TestHandOver(t *testing.T) {
	t.Parallel()
	k := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored)
	k.Create("s1")
	k.Ask("s1", "hello")
	reader := k.Subscribe(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s1"}}})
	reader.Frame("the end of the replay", func(f *bridgev1.SubscribeResponse) bool { return f.GetCaughtUp() != nil })
	handOver := func(quiet bool, give func() error) bool {
		t.Helper()
		left, err := k.Store().HandOver(t.Context(), "s1", quiet, give)
		if err != nil {
			t.Error(err)
		}
		return left
	}
	notYet := func() error {
		t.Error("a session in use was given away")
		return nil
	}
	if handOver(true, notYet) {
		t.Error("a session that is watched left quietly")
	}
	loader := k.Store().Get("s1").Session.Loader()
	for _, loaded := range []bool{true, false} {
		release := loader.Hold()
		if handOver(false, notYet) {
			t.Errorf("a session left during a call; loaded %t", loaded)
		}
		release()
		if unloaded, err := loader.Unload(t.Context(), 0); loaded && (!unloaded || err != nil) {
			t.Errorf("unloaded %t, %v", unloaded, err)
		}
	}
	if err := k.AwaitRest(t.Context(), "s1"); err != nil {
		t.Error(err)
	}
	loaded := make(chan error, 1)
	given := false
	if !handOver(false, func() error {
		go func() {
			_, err := k.Load(t.Context(), "s1", func() ([]backend.Request, error) { return nil, nil })
			loaded <- err
		}()
		reader.Frame("the end", func(f *bridgev1.SubscribeResponse) bool {
			return f.GetClosed().GetReason() == bridgev1.CloseReason_CLOSE_REASON_DRAINING
		})
		if len(loaded) > 0 {
			t.Error("the session was loaded while it was given away")
		}
		given = true
		return nil
	}) || !given {
		t.Fatal("the session at rest stayed")
	}
	if err := <-loaded; err != nil || k.Store().Get("s1") == nil {
		t.Errorf("the session was not loaded again: %v", err)
	}
	if got := k.Conversation("s1"); len(got) == 0 {
		t.Error("the session has lost its events")
	}
	if out := k.Ask("s1", "again"); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("the next turn: %v", out)
	}
}
