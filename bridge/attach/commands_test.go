package attach_test

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

func sendCommand(id, requestID, text string) *bridgev1.AttachCommand {
	return &bridgev1.AttachCommand{
		CommandId: id, RequestId: requestID, Command: &bridgev1.AttachCommand_Send{Send: &bridgev1.Prompt{Text: text}},
	}
}

func exactSendCommand(id, requestID, text string) *bridgev1.AttachCommand {
	return &bridgev1.AttachCommand{CommandId: id, RequestId: requestID, Command: &bridgev1.AttachCommand_ExactSend{
		ExactSend: &cliv1.SessionServiceSendRequest{SessionId: "s1", Prompt: text},
	}}
}

// called returns which of some methods the CLI was called with.
func called(r *bridgetest.Bridge, methods ...string) (out []string) {
	for _, m := range r.FakeCLI().Log() {
		if m.Kind == fakecli.EntryReceived && slices.Contains(methods, m.Type) {
			out = append(out, m.Type)
		}
	}
	return out
}

func slowSends() fakecli.Script {
	return fakecli.Script{Faults: []fakecli.MethodFault{
		{Method: "session.send", Fault: fakecli.Fault{Kind: fakecli.FaultDelay, DelayMS: 20}},
	}}
}

// The commands of a participant are carried out in order, also behind a prompt that no goroutine waits for.
func TestCommandsStayInOrder(t *testing.T) {
	t.Parallel()
	none := func(int) string { return "" }
	for name, tc := range map[string]struct {
		id   func(int) string
		send func(id, requestID, text string) *bridgev1.AttachCommand
	}{
		"without request ids": {none, sendCommand}, "with request ids": {strconv.Itoa, sendCommand},
		"exactly, without request ids": {none, exactSendCommand}, "exactly": {strconv.Itoa, exactSendCommand},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bridgetest.New(t, slowSends())
			r.Create("s1")
			c := r.Attach("s1")
			const rounds = 4
			for i := range rounds {
				c.Give(tc.send(strconv.Itoa(3*i), tc.id(2*i), "one"))
				c.Give(tc.send(strconv.Itoa(3*i+1), tc.id(2*i+1), "two"))
				abort := &bridgev1.AttachCommand_Abort{Abort: &bridgev1.AbortCommand{}}
				c.Give(&bridgev1.AttachCommand{CommandId: strconv.Itoa(3*i + 2), Command: abort})
			}
			for next := range 3 * rounds {
				if d := c.Done(); d.GetCommandId() != strconv.Itoa(next) {
					t.Fatalf("the reply to command %s comes before that to %d", d.GetCommandId(), next)
				}
			}
			want := slices.Repeat([]string{"session.send", "session.send", "session.abort"}, rounds)
			if got := called(r, "session.send", "session.abort"); !slices.Equal(got, want) {
				t.Errorf("the CLI was called with %q", got)
			}
		})
	}
}

// A prompt with a request id is sent once, also if two participants send it at the same time, and in a session that has
// to be loaded for it. The CLI's own result comes back for exact_send.
func TestPromptOfARequestIDIsSentOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		send     func(id, requestID, text string) *bridgev1.AttachCommand
		unloaded bool
	}{
		"send": {sendCommand, false}, "send, unloaded": {sendCommand, true},
		"exact_send": {exactSendCommand, false}, "exact_send, unloaded": {exactSendCommand, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bridgetest.New(t, slowSends())
			r.Create("s1")
			first, second := r.Attach("s1"), r.Attach("s1")
			if tc.unloaded {
				loader := r.Store().Get("s1").Session.Loader()
				if ok, err := loader.Unload(t.Context(), 0); !ok || err != nil {
					t.Fatalf("unloaded: %v, %v", ok, err)
				}
			}
			first.Give(tc.send("a", "r", "hello"))
			second.Give(tc.send("b", "r", "hello"))
			want, other := first.Done(), second.Done()
			first.Give(tc.send("c", "r", "hello"))
			exact := want.GetSendResult().GetMessageId()
			if want.GetMessageId() == "" || exact != "" && exact != want.GetMessageId() ||
				(exact != "") != strings.HasPrefix(name, "exact") {
				t.Errorf("the answer is %v", want)
			}
			if want.GetPosition() == nil && other.GetPosition() == nil { // exact_send: only the request that was carried out
				t.Errorf("neither %v nor %v has a position", want, other)
			}
			for _, got := range []*bridgev1.AttachDone{other, first.Done()} {
				same := got.GetMessageId() == want.GetMessageId() &&
					proto.Equal(got.GetSendResult(), want.GetSendResult())
				if !same || exact == "" && !proto.Equal(got.GetPosition(), want.GetPosition()) {
					t.Errorf("command %s is answered %v, not %v", got.GetCommandId(), got, want)
				}
			}
			if sent := called(r, "session.send"); len(sent) != 1 {
				t.Errorf("the CLI was called %d times", len(sent))
			}
		})
	}
}

// A prompt with a request id on a participant's stream is recorded before the CLI has it: after a kill, a repeated
// request does not send it again before its outcome is known.
func TestStartedPromptStaysInDoubt(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(id, requestID, text string) *bridgev1.AttachCommand{
		"send": sendCommand, "exact_send": exactSendCommand,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bridgetest.New(t, fakecli.Script{}, bridgetest.Scripts(func(life int) (s fakecli.Script) {
				if life == 0 {
					s.Faults = []fakecli.MethodFault{
						{Method: "session.send", After: 1, Fault: fakecli.Fault{Kind: fakecli.FaultHang}},
					}
				}
				return s
			}), bridgetest.Stored)
			r.Create("s1")
			r.Ask("s1", "hi")
			r.Attach("s1").Give(send("a", "q", "on"))
			bridgetest.Eventually(t, "the prompt", func() bool { return bridgetest.Received(r.FakeCLI(), "session.send") == 2 })
			r = r.Restart()
			again := r.Attach("s1")
			again.Give(send("b", "q", "on"))
			for f := range again.Frames {
				if f.GetDone() != nil {
					t.Fatal("it is said again before it is known whether it was said")
				}
				if failed := f.GetFailed(); failed != nil {
					if failed.GetFailure().GetReason() != bridgev1.ErrorReason_ERROR_REASON_SEND_UNCONFIRMED {
						t.Errorf("the history does not contain it, and the repetition ends with %v", failed)
					}
					break
				}
			}
			again.Give(send("c", "q", "on"))
			again.Done()
			if n := bridgetest.Received(r.FakeCLI(), "session.send"); n != 1 {
				t.Errorf("it was said %d times", n)
			}
		})
	}
}

// No goroutine waits for the CLI's reply to a prompt of a participant's stream. The test is not parallel, so that no
// other test has goroutines that send.
func TestStartedPromptsHaveNoGoroutine(t *testing.T) {
	for name, c := range map[string]*bridgev1.AttachCommand{
		"send": sendCommand("a", "", "hello"), "send with an id": sendCommand("a", "q", "hello"),
		"exact_send": exactSendCommand("a", "", "hello"), "exact_send with an id": exactSendCommand("a", "q", "hello"),
	} {
		t.Run(name, func(t *testing.T) {
			r := bridgetest.New(t, fakecli.Script{Faults: []fakecli.MethodFault{
				{Method: "session.send", Fault: fakecli.Fault{Kind: fakecli.FaultHang}},
			}})
			r.Create("s1")
			r.Attach("s1").Give(c)
			bridgetest.Eventually(t, "the prompt", func() bool { return bridgetest.Received(r.FakeCLI(), "session.send") == 1 })
			bridgetest.Eventually(t, "the end of its goroutines", func() bool {
				stacks := make([]byte, 8<<20)
				stacks = stacks[:runtime.Stack(stacks, true)]
				return !strings.Contains(string(stacks), "/bridge/session.(*Sender)")
			})
		})
	}
}
