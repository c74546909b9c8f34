package callback

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// ownCommands are the ways in which a user gives a participant's command.
var ownCommands = map[string]question{
	"invoked": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_COMMAND, bound: true, joins: harness.Commanding("deploy"),
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			return invoke(st, s, "session.commands.invoke", map[string]any{"name": "deploy", "input": "prod"})
		},
		request: `command_name:"deploy" args:"prod"`,
		accept:  &bridgev1.CommandAnswer{}, accepted: "completed",
		decline: &bridgev1.CommandAnswer{Error: proto.String("not on a Friday")}, declined: "not on a Friday",
		silent: "no participant",
	},
	"queued": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_QUEUED_COMMAND, bound: true, joins: harness.Commanding("deploy"),
		ask:     queueing("/deploy prod"),
		request: `command:"/deploy prod"`,
		accept:  handledAndStop, accepted: "messages after it: 0",
		decline: &cliv1.QueuedCommandResult{Variant: &cliv1.QueuedCommandResult_False{False: &cliv1.QueuedCommandNotHandled{}}}, declined: "messages after it: 1",
		wrong:  &cliv1.QueuedCommandResult{},
		silent: "messages after it: 1",
	},
}

func TestOwnCommands(t *testing.T) {
	t.Parallel()
	host := harness.NewOwnFixture(t, harness.Echo, harness.HostConfig{Raw: true}).Host
	for name, q := range ownCommands {
		t.Run(name, func(t *testing.T) { q.test(t, host) })
	}
}

// TestCommandsOfMany: commands are a union, of which each has one owner.
func TestCommandsOfMany(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Raw: true})
	c := st.Config()
	c.Commands = []*cliv1.CommandDeclaration{{Name: "ours", Description: "The session's."}}
	s := st.Create(copilot.SessionOptions{Config: c})
	join := func(name string) *bridgev1.AttachStart {
		start := harness.JoinOf(s.ID(), nil)
		harness.Commanding(name)(start)
		return start
	}
	one := st.Attach(join("one"))
	two := st.Attach(join("two"))
	listed := func() string { return invoke(st, s, "session.commands.list", map[string]any{})() }
	for _, name := range []string{"ours", "one", "two"} {
		if list := listed(); !strings.Contains(list, `"`+name+`"`) {
			t.Errorf("command %q is not in %s", name, list)
		}
		_, err := st.TryAttach(st.Client, join(name))
		harness.WantField(t, copilot.FromError(err), codes.AlreadyExists,
			bridgev1.ErrorReason_ERROR_REASON_COMMAND_NAME_CONFLICT, "start.commands[0].name")
	}
	_, err := st.TryAttach(st.Client, join("with space"))
	harness.WantField(t, copilot.FromError(err), codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD,
		"start.commands[0].name")
	if info, err := s.Get(st.Ctx); err != nil || !strings.Contains(unspaced(info.Proto.String()), `commands:"one"`) {
		t.Errorf("the session is %v, %v", info, err)
	}
	// The remaining commands still work; a withdrawn one, the last one too, fails.
	for _, p := range []struct {
		a    *harness.Attached
		name string
	}{{two, "two"}, {one, "one"}} {
		got := invoke(st, s, "session.commands.invoke", map[string]any{"name": p.name, "input": ""})
		var cb *bridgev1.Callback
		p.a.Frame("the command", func(f *bridgev1.SubscribeResponse) bool {
			cb = f.GetCallbackRequested().GetCallback()
			return cb.GetCommand().GetCommandName() == p.name
		})
		answer, err := copilot.AnswerWith(&bridgev1.CommandAnswer{})
		if err != nil {
			t.Fatal(err)
		}
		if r := p.a.Answer(cb.GetCallbackId(), answer); r.Failed != nil {
			t.Fatalf("the answer was refused: %v", r.Failed)
		}
		if text := got(); !strings.Contains(text, "completed") {
			t.Errorf("%q came to %s", p.name, text)
		}
		p.a.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Leave{Leave: &bridgev1.AttachLeave{}}})
		p.a.Closed()
		if text := invoke(st, s, "session.commands.invoke",
			map[string]any{"name": p.name, "input": ""})(); strings.Contains(text, "completed") {
			t.Errorf("%q, withdrawn, came to %s", p.name, text)
		}
	}
}

// TestCommandOfAGoClient: the same by the options of clients/go.
func TestCommandOfAGoClient(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Raw: true})
	s := st.Create(copilot.SessionOptions{})
	given := make(chan string, 1)
	guest := st.Join(s.ID(), copilot.SessionOptions{
		Commands: []*cliv1.CommandDeclaration{{Name: "deploy", Description: "Does it."}},
		OnCommand: func(_ context.Context, c *copilot.Command) error {
			given <- c.GetArgs()
			return nil
		},
	})
	invoke := func() string {
		return invoke(st, s, "session.commands.invoke", map[string]any{"name": "deploy", "input": "prod"})()
	}
	if text := invoke(); !strings.Contains(text, "completed") {
		t.Errorf("it came to %s", text)
	}
	if args := harness.Await(st, given, "the command"); args != "prod" {
		t.Errorf("it was given %q", args)
	}
	if err := guest.Close(); err != nil {
		t.Fatal(err)
	}
	if text := invoke(); strings.Contains(text, "completed") {
		t.Errorf("after its owner left it came to %s", text)
	}
}
