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

// The commands of a participant are carried out in order, also behind a prompt that no goroutine waits for.
func TestCommandsStayInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakecli.Script{Faults: []fakecli.MethodFault{
		{Method: "session.send", Fault: fakecli.Fault{Kind: fakecli.FaultDelay, DelayMS: 20}},
	}})
	r.create("s1")
	a, err := r.Participants.Attach(t.Context(), &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: "s1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	frames, over := make(chan *bridgev1.AttachResponse, 1000), make(chan struct{})
	go func() {
		defer close(over)
		_ = a.Stream(ctx, func(f frame.Frame) error {
			if m, ok := f.Message.(*bridgev1.AttachResponse); ok {
				frames <- proto.Clone(m).(*bridgev1.AttachResponse)
			}
			return nil
		})
		a.Lost()
	}()
	defer func() { stop(); <-over }()
	const rounds = 4
	for i := range rounds {
		for k, c := range []*bridgev1.AttachCommand{
			{Command: &bridgev1.AttachCommand_Send{Send: &bridgev1.Prompt{Text: "one"}}},
			{Command: &bridgev1.AttachCommand_Send{Send: &bridgev1.Prompt{Text: "two"}}},
			{Command: &bridgev1.AttachCommand_Abort{Abort: &bridgev1.AbortCommand{}}},
		} {
			c.CommandId = strconv.Itoa(3*i + k)
			request := &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Command{Command: c}}
			if err := a.Handle(ctx, request); err != nil {
				t.Fatal(err)
			}
		}
	}
	for next := 0; next < 3*rounds; {
		f := <-frames
		if failure := f.GetFailed(); failure != nil {
			t.Fatalf("a command failed: %v", failure)
		}
		if d := f.GetDone(); d != nil {
			if d.GetCommandId() != strconv.Itoa(next) {
				t.Fatalf("the reply to command %s comes before that to %d", d.GetCommandId(), next)
			}
			next++
		}
	}
	var methods []string
	for _, m := range r.cli.Log() {
		if m.Kind == fakecli.EntryReceived && (m.Type == "session.send" || m.Type == "session.abort") {
			methods = append(methods, m.Type)
		}
	}
	want := slices.Repeat([]string{"session.send", "session.send", "session.abort"}, rounds)
	if !slices.Equal(methods, want) {
		t.Errorf("the CLI was called with %q", methods)
	}
}
