package bridge

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// sharedDirectory shows no sessions and no requests at the start, as that of a cluster.
type sharedDirectory struct {
	Directory

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
	k := newKept(t, always(fakecli.Script{}))
	k.create("s1")
	request := &bridgev1.SendAndWaitRequest{
		RequestId: "once", SessionId: "s1", Prompt: &bridgev1.Prompt{Text: "hello"},
	}
	first, err := k.Turns.SendAndWait(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	directory := new(sharedDirectory)
	next := k.reborn(func(c *Config) { directory.Directory, c.Directory = c.Directory, directory })
	if next.Loaded("s1") {
		t.Fatal("the session was loaded at the start")
	}
	var asked atomic.Int32
	requests := func() []backend.Request {
		asked.Add(1)
		return directory.known
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
	if n := asked.Load(); n != 1 || !next.Loaded("s1") {
		t.Errorf("the session was loaded %d times", n)
	}
	again, err := next.Turns.SendAndWait(t.Context(), request)
	if err != nil || again.GetMessageId() != first.GetMessageId() {
		t.Errorf("the repeated request got %v, %v, the first %v", again, err, first)
	}
}
