package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// host is the host of a session that is not loaded.
type host struct{}

func (host) Runtime(context.Context) (session.Runtime, error) { return nil, errors.New("no runtime") }
func (host) Stopped() <-chan struct{}                         { return nil }
func (host) Go(func(context.Context)) bool                    { return false }
func (host) Spawn(func())                                     {}
func (host) Changed(bridgev1.SessionChange)                   {}
func (host) MarkDirty()                                       {}
func (host) Store() error                                     { return nil }
func (host) LabelsChanged()                                   {}
func (host) CallbackRequested(*callback.Pending)              {}
func (host) CallbackResolved(session.Resolved)                {}
func (host) Refresh()                                         {}
func (host) BuiltIns(context.Context) *config.BuiltIns        { return nil }

func (host) Watched(map[string]string) []string { return nil }
func (host) Epoch() uint64                      { return 1 }
func (host) Logger() *slog.Logger               { return slog.New(slog.DiscardHandler) }

// shared is a session that every caller may use.
type shared struct{ s *session.Session }

func (f shared) Following(context.Context, string) (*session.Session, error) { return f.s, nil }
func (shared) Visible(context.Context) []*sessions.Entry                     { return nil }
func (shared) All() []*sessions.Entry                                        { return nil }

// model counts the parts of responses that the CLI receives.
type model struct{ parts atomic.Int32 }

func (m *model) Call(context.Context, string, []byte, ...rpcconn.CallOption) (json.RawMessage, error) {
	m.parts.Add(1)
	return json.RawMessage(`{"accepted":true}`), nil
}

// Guests cannot answer the model requests of a session, before or after the owner's caller has taken one: for them no
// such request is pending.
func TestGuestsCannotAnswerModelRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := session.New(session.Config{ID: "s", Tenant: "acme", Host: host{}, Epoch: 1})
		tasks := shutdown.New()
		defer tasks.Close()
		svc, cli := New(shared{s}, nil, nil, tasks, nil), &model{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = s.Models().Start(ctx, cli, "q1", json.RawMessage(`{"requestId":"r"}`)) // it ends with ctx
		}()
		defer func() { cancel(); <-ended }()
		synctest.Wait()
		as := func(tenant string) context.Context {
			return caller.With(ctx, caller.Caller{Tenant: tenant, Class: caller.Drive})
		}
		response := &bridgev1.ModelResponse{RequestId: "r",
			Part: &bridgev1.ModelResponse_Head{Head: &bridgev1.ModelResponseHead{Status: 200}}}
		request := &bridgev1.SendModelResponseRequest{SessionId: "acme/s", Response: response}
		refused := func(when string) {
			t.Helper()
			if _, err := svc.SendModelResponse(as("guest"), request); fault.ReasonOf(err) != fault.CallbackNotFound {
				t.Errorf("%s a guest's call returns %v", when, err)
			}
			if err := svc.Respond(as("guest"), s, response, "p1"); fault.ReasonOf(err) != fault.CallbackNotFound {
				t.Errorf("%s a guest's frame returns %v", when, err)
			}
		}
		refused("before the answer")
		if got := cli.parts.Load(); got != 0 || s.Callbacks().Registry().Len() != 1 {
			t.Fatalf("the CLI received %d parts, %d requests are pending", got, s.Callbacks().Registry().Len())
		}
		if _, err := svc.SendModelResponse(as("acme"), request); err != nil {
			t.Fatal(err)
		}
		refused("after the answer")
		if got := cli.parts.Load(); got != 1 {
			t.Errorf("the CLI received %d parts, want one", got)
		}
	})
}
