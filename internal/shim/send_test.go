package shim

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// rpcSend is the call that sends a prompt without a stream.
const rpcSend = "/copilot.cli.v1.SessionService/Send"

func encoded(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPlainSends(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		request *cliv1.SessionServiceSendRequest
		want    bool
	}{
		"a prompt":    {&cliv1.SessionServiceSendRequest{Prompt: "x", Prepend: proto.Bool(true)}, true},
		"attachments": {&cliv1.SessionServiceSendRequest{Attachments: []*cliv1.Attachment{{}}}, false},
		"wait":        {&cliv1.SessionServiceSendRequest{Wait: proto.Bool(false)}, false},
		"internal":    {&cliv1.SessionServiceSendRequest{Source: proto.String("x")}, false},
		"undeclared":  {&cliv1.SessionServiceSendRequest{JsonExtra: `{"a":1}`}, false},
		"long":        {&cliv1.SessionServiceSendRequest{Prompt: strings.Repeat("x", maxCommand)}, false},
	} {
		if got := plain(encoded(t, tc.request)); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
	if plain([]byte{0xff}) {
		t.Error("bytes that are no message may go over the stream")
	}
	known := (&cliv1.SessionServiceSendRequest{}).ProtoReflect().Descriptor().Fields()
	for number := range plainSends {
		if known.ByNumber(protowire.Number(number)) == nil {
			t.Errorf("field %d does not exist", number)
		}
	}
}

func TestSendFrame(t *testing.T) {
	t.Parallel()
	want := &cliv1.SessionServiceSendRequest{SessionId: "s1", Prompt: "hello"}
	got := &bridgev1.AttachRequest{}
	if err := proto.Unmarshal(sendFrame("c1", encoded(t, want), "r1"), got); err != nil {
		t.Fatal(err)
	}
	c := got.GetCommand()
	if c.GetCommandId() != "c1" || c.GetRequestId() != "r1" || !proto.Equal(c.GetExactSend(), want) {
		t.Errorf("the frame is %v", got)
	}
}

// Prompts go over the stream of their session; a separate call is for prompts that a stream must not have, and
// for sessions without a stream.
func TestSendGoesOverTheStream(t *testing.T) {
	t.Parallel()
	r := newFixture(t, script)
	p := r.connect(false)
	p.call("session.create", creation)
	for i, tc := range []struct {
		params string
		calls  int
	}{
		{`{"sessionId":"s1","prompt":"hello"}`, 0},
		{`{"sessionId":"s1","prompt":"hello","extra":1}`, 1},
		{`{"sessionId":"s1","prompt":"hello again"}`, 1},
	} {
		if got := p.call("session.send", tc.params); !strings.Contains(got, "messageId") {
			t.Errorf("%s: %s", tc.params, got)
		}
		p.await("session.idle", i+1)
		if got := r.called(rpcSend); got != tc.calls {
			t.Errorf("%d calls after %s, want %d", got, tc.params, tc.calls)
		}
	}
	if got := p.call("session.send", `{"sessionId":"nope","prompt":"x"}`); !strings.Contains(got, "not found") ||
		r.called(rpcSend) != 2 {
		t.Errorf("without a stream: %s, %d calls", got, r.called(rpcSend))
	}
}

// An error of the CLI reaches the program as it is: code, text and data.
func TestErrorOfSendOverTheStream(t *testing.T) {
	t.Parallel()
	failing := fakecli.Script{Faults: []fakecli.MethodFault{{
		Method: "session.send",
		Fault: fakecli.Fault{
			Kind: fakecli.FaultError, Code: -32098, Message: "busy", Data: json.RawMessage(`{"a":1}`),
		},
	}}}
	r := newFixture(t, failing)
	direct, p := r.connect(true), r.connect(false)
	direct.call("session.create", `{"sessionId":"s0"}`)
	p.call("session.create", creation)
	want := direct.call("session.send", `{"sessionId":"s0","prompt":"hello"}`)
	if got := p.call("session.send", `{"sessionId":"s1","prompt":"hello"}`); got != want || r.called(rpcSend) != 0 {
		t.Errorf("the error is %s, want %s; %d calls", got, want, r.called(rpcSend))
	}
}

// The stream breaks while the CLI has the prompt: the shim repeats the request, and the CLI gets the prompt once.
func TestInterruptedSend(t *testing.T) {
	t.Parallel()
	r := newFixture(t, script)
	p := r.connect(false)
	p.call("session.create", creation)
	var sends atomic.Int32
	cut := sync.OnceFunc(r.cut)
	received := func(method string) {
		if method == methodSend {
			sends.Add(1)
			cut()
		}
	}
	r.received.Store(&received)
	if got := p.call("session.send", `{"sessionId":"s1","prompt":"hello"}`); !strings.Contains(got, "messageId") {
		t.Errorf("the answer is %s", got)
	}
	p.await("session.idle", 1)
	if sends.Load() != 1 || r.called(rpcSend) == 0 {
		t.Errorf("the CLI got %d prompts by %d calls, want 1 by at least 1", sends.Load(), r.called(rpcSend))
	}
}

// The error of a command has the details of a call's status.
func TestFailedCommand(t *testing.T) {
	t.Parallel()
	failure, _ := fault.Failure(fault.New(fault.Draining, "the server is draining"))
	err := failedCommand(&bridgev1.AttachFailed{Failure: failure})
	if err.Error() != "the server is draining" || !passes(err) {
		t.Errorf("%v is not worth another try", err)
	}
	failure, _ = fault.Failure(fault.New(fault.CredentialsNeeded, "x").With("missing", "provider.api_key"))
	err = failedCommand(&bridgev1.AttachFailed{Failure: failure})
	if got := lacks(err); len(got) != 1 || got[0] != "provider" {
		t.Errorf("the missing members are %q", got)
	}
	err = failedCommand(&bridgev1.AttachFailed{
		Failure:  &bridgev1.Failure{Code: int32(codes.Internal), Message: "m"},
		RpcError: &bridgev1.JsonRpcError{Code: 7, Message: "seven", DataJson: `{"a":1}`},
	})
	rpc, ok := errors.AsType[*rpcconn.Error](rpcError(err, methodSend))
	if !ok || rpc.Code != 7 || rpc.Message != "seven" || string(rpc.Data) != `{"a":1}` {
		t.Errorf("the CLI's error became %v", rpc)
	}
}
