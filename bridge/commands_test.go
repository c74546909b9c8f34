package bridge

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// commander is a participant that gives commands.
type commander struct {
	t      *testing.T
	give   func(*bridgev1.AttachCommand)
	frames chan *bridgev1.AttachResponse
}

// command attaches a participant that wants the CLI's own behaviour to a session until the test ends.
func (r *rig) command(session string) *commander {
	r.t.Helper()
	a, err := r.Participants.Attach(r.t.Context(), &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: session}, Exact: true,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(r.t.Context())
	c, over := &commander{t: r.t, frames: make(chan *bridgev1.AttachResponse, 1000)}, make(chan struct{})
	go func() {
		defer close(over)
		_ = a.Stream(ctx, func(f frame.Frame) error {
			if m, ok := f.Message.(*bridgev1.AttachResponse); ok {
				c.frames <- proto.Clone(m).(*bridgev1.AttachResponse)
			}
			return nil
		})
		a.Lost()
	}()
	r.t.Cleanup(func() { stop(); <-over })
	c.give = func(command *bridgev1.AttachCommand) {
		request := &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Command{Command: command}}
		if err := a.Handle(ctx, request); err != nil {
			r.t.Fatal(err)
		}
	}
	return c
}

// done returns the next reply to a command.
func (c *commander) done() *bridgev1.AttachDone {
	c.t.Helper()
	for f := range c.frames {
		if failure := f.GetFailed(); failure != nil {
			c.t.Fatalf("a command failed: %v", failure)
		}
		if d := f.GetDone(); d != nil {
			return d
		}
	}
	return nil
}

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
func (r *rig) called(methods ...string) (out []string) {
	for _, m := range r.cli.Log() {
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
			r := newRig(t, slowSends())
			r.create("s1")
			c := r.command("s1")
			const rounds = 4
			for i := range rounds {
				c.give(tc.send(strconv.Itoa(3*i), tc.id(2*i), "one"))
				c.give(tc.send(strconv.Itoa(3*i+1), tc.id(2*i+1), "two"))
				abort := &bridgev1.AttachCommand_Abort{Abort: &bridgev1.AbortCommand{}}
				c.give(&bridgev1.AttachCommand{CommandId: strconv.Itoa(3*i + 2), Command: abort})
			}
			for next := range 3 * rounds {
				if d := c.done(); d.GetCommandId() != strconv.Itoa(next) {
					t.Fatalf("the reply to command %s comes before that to %d", d.GetCommandId(), next)
				}
			}
			want := slices.Repeat([]string{"session.send", "session.send", "session.abort"}, rounds)
			if got := r.called("session.send", "session.abort"); !slices.Equal(got, want) {
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
			r := newRig(t, slowSends())
			r.create("s1")
			first, second := r.command("s1"), r.command("s1")
			if tc.unloaded {
				loader := r.store.Get("s1").Session.Loader()
				if ok, err := loader.Unload(t.Context(), 0); !ok || err != nil {
					t.Fatalf("unloaded: %v, %v", ok, err)
				}
			}
			first.give(tc.send("a", "r", "hello"))
			second.give(tc.send("b", "r", "hello"))
			want := first.done()
			first.give(tc.send("c", "r", "hello"))
			exact := want.GetSendResult().GetMessageId()
			if want.GetMessageId() == "" || want.GetPosition() == nil || exact != "" && exact != want.GetMessageId() ||
				(exact != "") != strings.HasPrefix(name, "exact") {
				t.Errorf("the answer is %v", want)
			}
			for _, got := range []*bridgev1.AttachDone{second.done(), first.done()} {
				same := got.GetMessageId() == want.GetMessageId() &&
					proto.Equal(got.GetSendResult(), want.GetSendResult())
				if !same || exact == "" && !proto.Equal(got.GetPosition(), want.GetPosition()) {
					t.Errorf("command %s is answered %v, not %v", got.GetCommandId(), got, want)
				}
			}
			if sent := r.called("session.send"); len(sent) != 1 {
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
			r := newKept(t, func(life int) (s fakecli.Script) {
				if life == 0 {
					s.Faults = []fakecli.MethodFault{
						{Method: "session.send", After: 1, Fault: fakecli.Fault{Kind: fakecli.FaultHang}},
					}
				}
				return s
			})
			r.create("s1")
			r.ask("s1", "hi")
			r.command("s1").give(send("a", "q", "on"))
			eventually(t, "the prompt", func() bool { return received(r.life(), "session.send") == 2 })
			r = r.reborn()
			again := r.command("s1")
			again.give(send("b", "q", "on"))
			for f := range again.frames {
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
			again.give(send("c", "q", "on"))
			again.done()
			if n := received(r.life(), "session.send"); n != 1 {
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
			r := newRig(t, fakecli.Script{Faults: []fakecli.MethodFault{
				{Method: "session.send", Fault: fakecli.Fault{Kind: fakecli.FaultHang}},
			}})
			r.create("s1")
			r.command("s1").give(c)
			eventually(t, "the prompt", func() bool { return received(r.cli, "session.send") == 1 })
			eventually(t, "the end of its goroutines", func() bool {
				stacks := make([]byte, 8<<20)
				stacks = stacks[:runtime.Stack(stacks, true)]
				return !strings.Contains(string(stacks), "/bridge/session/sending.(*Sender)")
			})
		})
	}
}
