//go:build unix

package runtime

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A runtime of that profile listens; its connections share sessions, and end with it.
func TestConnect(t *testing.T) {
	t.Parallel()
	cfg := spawned(t, fakecli.Script{}, "")
	cfg.Profile.Multi = true
	events := make(chan []byte, 100)
	cfg.RPC.Event = func(body []byte) { events <- append([]byte(nil), body...) }
	r := start(t, cfg)
	if !r.Multi() || r.Info().Peer.Address == "" || r.Info().Peer.Token != "" {
		t.Fatalf("the runtime is %+v", r.Info())
	}
	more := make(chan []byte, 100)
	x, err := r.Connect(t.Context(), rpcconn.Options{Event: func(body []byte) { more <- append([]byte(nil), body...) }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Conn().Call(t.Context(), "session.create", []byte(`{"sessionId":"s1"}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Call(t.Context(), "session.resume", []byte(`{"sessionId":"s1"}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Call(t.Context(), "session.log", []byte(`{"sessionId":"s1","message":"to both"}`)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]chan []byte{"first": events, "other": more} {
		if !heard(t, c, "to both") {
			t.Errorf("the %s connection did not hear of it", name)
		}
	}
	x.Close()
	if x, err = r.Connect(t.Context(), rpcconn.Options{}); err != nil {
		t.Fatal(err)
	}
	stop(t, r)
	select {
	case <-x.Done():
	default:
		t.Error("a connection outlives its runtime")
	}
	if _, err := r.Connect(t.Context(), rpcconn.Options{}); fault.ReasonOf(err) != fault.RuntimeLost {
		t.Errorf("connecting to a runtime that ended: %v", err)
	}
}

// heard waits for an event with the text.
func heard(t *testing.T, events <-chan []byte, text string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		select {
		case body := <-events:
			var m struct {
				Params struct {
					Event struct{ Data struct{ Message string } }
				}
			}
			if json.Unmarshal(body, &m) == nil && m.Params.Event.Data.Message == text {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// A runtime on stdio has one connection; a CLI that does not come to listen is an error.
func TestConnectImpossible(t *testing.T) {
	t.Parallel()
	r := start(t, spawned(t, fakecli.Script{}, ""))
	if _, err := r.Connect(t.Context(), rpcconn.Options{}); r.Multi() || fault.ReasonOf(err) != fault.FeatureDisabled {
		t.Errorf("Connect: %v", err)
	}
	cfg := spawned(t, fakecli.Script{Start: fakecli.Start{Crash: true, ExitCode: 3, Stderr: "no port\n"}}, "")
	cfg.Profile.Multi = true
	if _, err := Start(t.Context(), cfg); fault.ReasonOf(err) != fault.CLIStartFailed {
		t.Errorf("Start: %v", err)
	}
}
