package bridge

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// commander is a participant that gives commands.
type commander struct {
	t      *testing.T
	give   func(*bridgev1.AttachCommand)
	frames chan *bridgev1.AttachResponse
}

// command attaches a participant to a session until the test ends.
func (r *rig) command(session string) *commander {
	r.t.Helper()
	a, err := r.Participants.Attach(r.t.Context(), &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: session},
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
	for name, id := range map[string]func(int) string{
		"without request ids": func(int) string { return "" }, "with request ids": strconv.Itoa,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, slowSends())
			r.create("s1")
			c := r.command("s1")
			const rounds = 4
			for i := range rounds {
				c.give(sendCommand(strconv.Itoa(3*i), id(2*i), "one"))
				c.give(sendCommand(strconv.Itoa(3*i+1), id(2*i+1), "two"))
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
// to be loaded for it.
func TestPromptOfARequestIDIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, unloaded := range []bool{false, true} {
		t.Run("unloaded "+strconv.FormatBool(unloaded), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, slowSends())
			r.create("s1")
			first, second := r.command("s1"), r.command("s1")
			if unloaded {
				loader := r.store.Get("s1").Session.Loader()
				if ok, err := loader.Unload(t.Context(), 0); !ok || err != nil {
					t.Fatalf("unloaded: %v, %v", ok, err)
				}
			}
			first.give(sendCommand("a", "r", "hello"))
			second.give(sendCommand("b", "r", "hello"))
			want := first.done()
			first.give(sendCommand("c", "r", "hello"))
			for _, got := range []*bridgev1.AttachDone{second.done(), first.done()} {
				same := got.GetMessageId() == want.GetMessageId() && proto.Equal(got.GetPosition(), want.GetPosition())
				if got.GetMessageId() == "" || !same {
					t.Errorf("command %s has message %q at %v, not %q at %v", got.GetCommandId(), got.GetMessageId(),
						got.GetPosition(), want.GetMessageId(), want.GetPosition())
				}
			}
			if sent := r.called("session.send"); len(sent) != 1 {
				t.Errorf("the CLI was called %d times", len(sent))
			}
		})
	}
}
