package deploy

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// restart ends Envoy and starts it again.
func (f *fronted) restart() {
	f.T.Helper()
	f.proxy.Stop(syscall.SIGTERM)
	f.proxy = harness.StartProxy(f.T, f.bin, f.args()...)
	f.T.Cleanup(func() { _ = f.remote.Close() }) // before the end of Envoy
}

// answers waits until the client has an answer through Envoy.
func (f *fronted) answers() {
	f.T.Helper()
	f.Eventually("an answer through Envoy", func() bool { _, err := f.remote.ServerInfo(f.Ctx); return err == nil })
}

// Envoy ends in the middle of a turn and starts again: plain streams are cut, the turn goes on, and the library has its
// outcome. A caller that repeats its request has the same outcome.
func TestBehindEnvoyRestart(t *testing.T) {
	t.Parallel()
	f := newFronted(t, 75*time.Second, time.Second, nil,
		harness.OnUser("work", harness.Call("works", nil)), harness.OnResult("works", harness.Say("{{tool_result}}")))
	works := harness.NewHold()
	s := f.session(works.Tool("works", "worked"))
	check := f.follow(s.ID(), 1)
	plain := f.Subscribe(f.remote, s.ID(), time.Second)
	if err := beats(1, plain.Recv); err != nil {
		t.Fatal(err)
	}
	wait := f.GoTurn(s, "work", copilot.WithRequestID("once"))
	harness.Await(f.Scripted, works.Asked, "the tool's call")
	f.proxy.Stop(syscall.SIGTERM)
	if announced, err := ended(plain); announced || status.Code(err) != codes.Unavailable {
		t.Errorf("the plain stream ended with %v", err)
	}
	_, err := f.remote.Sessions().GetSession(f.Ctx, &bridgev1.GetSessionRequest{SessionId: s.ID()})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a call without Envoy: %v", err)
	}
	f.restart()
	f.answers()
	works.Release()
	if out := wait(); out.Text() != "worked" {
		t.Errorf("the turn ended with %v", out)
	}
	again, err := f.remote.Sessions().SendAndWait(f.Ctx, &bridgev1.SendAndWaitRequest{
		SessionId: s.ID(), RequestId: "once", Prompt: &bridgev1.Prompt{Text: "work"},
	})
	if err != nil || again.GetOutcome().GetText() != "worked" {
		t.Errorf("the repeated request: %v, %v", again, err)
	}
	check()
	if n := len(f.All(f.remote.Session(s.ID()), "user.message")); n != 1 || works.Calls.Load() != 1 {
		t.Errorf("%d prompts and %d calls of the tool", n, works.Calls.Load())
	}
}

// The server is stopped in the middle of a turn: Envoy lets answers to callbacks through while the server drains, so
// that the turn completes. The server is killed in the middle of the next turn: the library has its outcome, and so has
// a caller that repeats its call.
func TestBehindEnvoyServerRestart(t *testing.T) {
	t.Parallel()
	f := newFronted(t, 75*time.Second, time.Minute, nil,
		harness.OnUser("work", harness.Call("works", nil)), harness.OnResult("works", harness.Say("{{tool_result}}")))
	s := f.session(harness.Declared("works"))
	check := f.follow(s.ID(), 2)
	outcome := f.GoTurn(s, "work")
	callback := f.Waiting(s.ID()).GetCallbackId()
	if err := f.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	unhealthy := "copilot_grpc::" + f.listen + "::health_flags::/failed_active_hc"
	f.Eventually("Envoy finds the server unhealthy", func() bool {
		return strings.Contains(f.admin(http.MethodGet, "/clusters"), unhealthy)
	})
	_, err := f.remote.Sessions().Send(f.Ctx,
		&bridgev1.SendRequest{SessionId: s.ID(), Prompt: &bridgev1.Prompt{Text: "more"}})
	harness.WantError(t, err, codes.Unavailable, bridgev1.ErrorReason_ERROR_REASON_DRAINING)
	f.resolve(s, callback)
	if out := outcome(); out.Text() != "worked" {
		t.Errorf("the turn ended with %v", out)
	}
	f.Stop(syscall.SIGTERM)
	_, err = f.remote.Sessions().GetSession(f.Ctx, &bridgev1.GetSessionRequest{SessionId: s.ID()})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a call without the server: %v", err)
	}
	f.Start()
	f.answers()

	again := &bridgev1.SendAndWaitRequest{SessionId: s.ID(), RequestId: "again", Prompt: &bridgev1.Prompt{Text: "work"}}
	call := make(chan error, 1)
	go func() {
		_, err := f.remote.Sessions().SendAndWait(f.Ctx, again)
		call <- err
	}()
	f.Waiting(s.ID())
	outcome = f.GoTurn(s, "work", copilot.WithRequestID("again"))
	plain := f.Subscribe(f.remote, s.ID(), time.Second)
	if err := beats(1, plain.Recv); err != nil {
		t.Fatal(err)
	}
	f.Stop(syscall.SIGKILL)
	if err := <-call; status.Code(err) != codes.Unavailable {
		t.Errorf("the plain call ended with %v", err)
	}
	// The answer to a stream has begun, so that Envoy can only reset it.
	if announced, err := ended(plain); announced || status.Code(err) != codes.Internal {
		t.Errorf("the plain stream ended with %v", err)
	}
	f.Start()
	if out := outcome(); out.Status() != copilot.TurnRuntimeLost {
		t.Errorf("the turn of the killed server ended with %v", out.Err())
	}
	repeated, err := f.remote.Sessions().SendAndWait(f.Ctx, again)
	if err != nil || repeated.GetOutcome().GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
		t.Errorf("the repeated call: %v, %v", repeated, err)
	}
	f.resolve(s, f.Waiting(s.ID()).GetCallbackId()) // the CLI asks again
	if f.Before("1.0.102") {
		// CLI 1.0.81 takes the answer, and goes on with the next prompt only.
		next, err := f.remote.Sessions().SendAndWait(f.Ctx,
			&bridgev1.SendAndWaitRequest{SessionId: s.ID(), Prompt: &bridgev1.Prompt{Text: "go on"}})
		if err != nil || next.GetOutcome().GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
			t.Errorf("the prompt behind the answer: %v, %v", next, err)
		}
	}
	check()
}

// resolve answers a tool call through Envoy.
func (f *fronted) resolve(s *copilot.Session, callback string) {
	f.T.Helper()
	answer, _ := copilot.AnswerTool("worked")
	_, err := f.remote.Callbacks().Resolve(f.Ctx,
		&bridgev1.ResolveRequest{CallbackId: callback, SessionId: s.ID(), Answer: answer})
	if err != nil {
		f.T.Fatal(err)
	}
}

// Envoy and the server are drained and replaced, in both orders. A reader is told by the server, also through an Envoy
// that takes no connections any more, and misses nothing.
func TestBehindEnvoyDrain(t *testing.T) {
	t.Parallel()
	f := newFronted(t, 75*time.Second, time.Second, nil)
	s := f.session()
	check := f.follow(s.ID(), 3)
	f.Say(s, "before")
	for _, first := range []string{"Envoy", "the server"} {
		plain := f.Subscribe(f.remote, s.ID(), time.Second)
		if err := beats(1, plain.Recv); err != nil {
			t.Fatal(err)
		}
		if first == "Envoy" {
			f.drain()
			if err := beats(2, plain.Recv); err != nil {
				t.Errorf("the stream of a drained Envoy: %v", err)
			}
		}
		f.Stop(syscall.SIGTERM)
		if announced, err := ended(plain); !announced {
			t.Errorf("%s first: the stream ended with %v, and the server had not said that it would", first, err)
		}
		if first == "Envoy" {
			f.Start()
			f.restart()
		} else {
			f.drain()
			f.restart()
			f.Start()
		}
		f.answers()
		f.Say(s, "after "+first)
	}
	check()
}

// drain lets Envoy drain until it takes no connections.
func (f *fronted) drain() {
	f.T.Helper()
	f.admin(http.MethodPost, "/drain_listeners?graceful")
	f.awaitClosed()
}
