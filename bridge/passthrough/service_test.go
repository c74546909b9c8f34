package passthrough_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/climethods"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// invokeCLI calls a method of copilot.cli.v1 in the way the server does.
func invokeCLI[R proto.Message](r *bridgetest.Bridge, method string, request proto.Message, reply R, exact bool, requestID string) (R, error) {
	r.T.Helper()
	wire, err := proto.Marshal(request)
	if err != nil {
		r.T.Fatal(err)
	}
	out, err := r.CLI.CallCLI(r.T.Context(), climethods.All()[method], wire, exact, requestID, nil)
	if err != nil {
		return reply, err
	}
	return reply, proto.Unmarshal(out, reply)
}

// A send of copilot.cli.v1 is a send: its turn is followed, and one with the same request
// id is the same one.
func TestSurfaceSend(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
	r.Create("s1")
	send := func(id string) string {
		out, err := invokeCLI(r, "session.send", &cliv1.SessionServiceSendRequest{SessionId: "s1", Prompt: "hello"}, &cliv1.SessionServiceSendResponse{}, false, id)
		if err != nil {
			t.Fatal(err)
		}
		return out.GetMessageId()
	}
	first := send("r1")
	if first == "" || send("r1") != first || send("r2") == first {
		t.Errorf("the first message is %q; a repeated request must have the same, another one another", first)
	}
	_, err := invokeCLI(r, "session.send", &cliv1.SessionServiceSendRequest{SessionId: "s1"}, &cliv1.SessionServiceSendResponse{}, false, "")
	bridgetest.WantFault(t, "an empty prompt", err, fault.PromptEmpty, "prompt")
	if _, err := invokeCLI(r, "session.send", &cliv1.SessionServiceSendRequest{SessionId: "s1"}, &cliv1.SessionServiceSendResponse{}, true, ""); err != nil {
		t.Errorf("an empty prompt of an exact caller: %v", err)
	}
}

// A prompt of copilot.cli.v1 whose answer a crash kept from being recorded is not sent twice: the
// history answers for session.send, the other methods fail with SEND_UNCONFIRMED.
func TestInterruptedSurfaceSend(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored)
	r.Create("s1")
	r.Ask("s1", "before")
	s, err := r.Store().Open(t.Context(), "s1")
	if err != nil {
		t.Fatal(err)
	}
	at := s.Journal().Last()
	since := binary.AppendUvarint(binary.AppendUvarint(nil, at.Epoch), at.Seq)
	r.Ask("s1", "hello") // the interrupted request's prompt
	params := wrapperspb.Bytes([]byte(`{"prompt":"hello"}`))
	r.Remember("s1", backend.Key{Operation: idempotency.On("session.send", "s1"), ID: "q"}, params, since)
	q := &cliv1.SessionServiceSendRequest{SessionId: "s1", Prompt: "hello"}
	out, err := invokeCLI(r, "session.send", q, &cliv1.SessionServiceSendResponse{}, false, "q")
	if err != nil || out.GetMessageId() == "" {
		t.Errorf("session.send is answered %v, %v", out, err)
	}
	params = wrapperspb.Bytes([]byte(`{"prompt":"go"}`))
	r.Remember("s1", backend.Key{Operation: idempotency.On("session.fleet.start", "s1"), ID: "q"}, params, since)
	fleet := &cliv1.SessionFleetServiceStartRequest{SessionId: "s1", Prompt: proto.String("go")}
	if _, err := invokeCLI(r, "session.fleet.start", fleet, &cliv1.SessionFleetServiceStartResponse{}, false, "q"); fault.ReasonOf(err) != fault.SendUnconfirmed {
		t.Errorf("session.fleet.start fails with %v", err)
	}
	if n := bridgetest.Received(r.FakeCLI(), "session.send") + bridgetest.Received(r.FakeCLI(), "session.fleet.start"); n != 2 {
		t.Errorf("the CLI was given %d prompts, want 2", n)
	}
}

// A refusal has a reason, and an exact caller receives the CLI's own error.
func TestSurfaceRefuses(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
	_, err := invokeCLI(r, "runtime.shutdown", &cliv1.RuntimeServiceShutdownRequest{}, &cliv1.RuntimeServiceShutdownResponse{}, false, "")
	bridgetest.WantFault(t, "runtime.shutdown", err, fault.MethodRefused, "method")
	if f, ok := fields.AsFault(err); !ok || f.RPC != nil {
		t.Errorf("a tidy caller is told %v", err)
	}
	for _, extra := range []string{`{"sessionId":"s2"}`, `{"prompt":"x"}`} {
		q := &cliv1.SessionServiceSendRequest{SessionId: "s1", JsonExtra: extra}
		_, err := invokeCLI(r, "session.send", q, &cliv1.SessionServiceSendResponse{}, false, "")
		if fault.ReasonOf(err) != fault.JSONExtraForbidden {
			t.Errorf("json_extra %s: %v", extra, err)
		}
	}
	// An exact caller's request is what its JSON says, and it is the session of that which is called.
	q := &cliv1.SessionServiceSendRequest{SessionId: "s1", JsonExtra: `{"sessionId":"s2","sessionId":"s3"}`}
	if _, err := invokeCLI(r, "session.send", q, &cliv1.SessionServiceSendResponse{}, true, ""); fault.ReasonOf(err) != fault.SessionNotFound || !strings.HasSuffix(err.Error(), "s3") {
		t.Errorf("a session in json_extra: %v", err)
	}
	_, err = invokeCLI(r, "session.mode.get", &cliv1.SessionModeServiceGetRequest{SessionId: "none"}, &cliv1.SessionModeServiceGetResponse{}, true, "")
	if f, ok := fields.AsFault(err); !ok || f.RPC == nil || f.RPC.Code != -32603 || !strings.HasSuffix(f.RPC.Message, "Session not found for sessionId: none") {
		t.Errorf("an exact caller is told %v", err)
	}
}

// An abort by the CLI's own method ends prompts that no runtime has, like SessionService.Abort.
func TestSurfaceAbort(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{}, bridgetest.Scripts(func(life int) fakecli.Script {
		s := bridgetest.Hanging
		if life > 0 { // the session stays unloaded
			s.Faults = []fakecli.MethodFault{{Method: "session.resume", Fault: fakecli.Fault{Kind: fakecli.FaultError}}}
		}
		return s
	}))
	r.Create("s1")
	r.Ask("s1", "hi")
	r.Begin("s1", "long")
	q := bridgetest.Repeatable("s1", "queued")
	r.Send(q)
	watching := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	watching.Until("<caught_up>")
	r.FakeCLI().Kill()
	watching.Restarted()
	s, err := r.Store().Open(t.Context(), "s1")
	if err != nil || s.Prompts().Outbox().Empty() {
		t.Fatalf("no prompt is stored, %v", err)
	}
	abort := &cliv1.SessionServiceAbortRequest{SessionId: "s1"}
	out, err := invokeCLI(r, "session.abort", abort, &cliv1.SessionServiceAbortResponse{}, false, "")
	if err != nil || !out.GetSuccess() {
		t.Errorf("session.abort returns %v, %v", out, err)
	}
	if list := s.Prompts().Outbox().Entries(); len(list) > 0 {
		t.Errorf("%d prompts are stored after the abort", len(list))
	}
}

// A prompt with a request id may wait for its turn for as long as that takes.
func TestWaitForALongTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := bridgetest.New(t, bridgetest.Hanging)
		r.Create("s1")
		send := &cliv1.SessionServiceSendRequest{SessionId: "s1", Prompt: "long", Wait: proto.Bool(true)}
		ended := make(chan error, 1)
		go func() {
			_, err := invokeCLI(r, "session.send", send, &cliv1.SessionServiceSendResponse{}, false, "q")
			ended <- err
		}()
		time.Sleep(8 * time.Minute)
		if len(ended) > 0 {
			t.Fatalf("it does not wait: %v", <-ended)
		}
		abort := &cliv1.SessionServiceAbortRequest{SessionId: "s1"}
		if _, err := invokeCLI(r, "session.abort", abort, &cliv1.SessionServiceAbortResponse{}, false, ""); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("it ends with %v", err)
		}
	})
}
