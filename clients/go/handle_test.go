package copilot_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// question is a callback of a kind; its request is what fill puts there.
func question(id string, kind bridgev1.CallbackKind, fill func(*bridgev1.Callback)) *bridgev1.Callback {
	cb := &bridgev1.Callback{CallbackId: id, SessionId: "s1", Kind: kind}
	fill(cb)
	return cb
}

func userInput(text string) *bridgev1.Callback {
	return question(text, bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT, func(cb *bridgev1.Callback) {
		cb.Request = &bridgev1.Callback_UserInput{UserInput: &copilot.UserInputRequest{Question: text}}
	})
}

func hook(hookType string, invocation *cliv1.HookInvocation) *bridgev1.Callback {
	return question(hookType, bridgev1.CallbackKind_CALLBACK_KIND_HOOK, func(cb *bridgev1.Callback) {
		invocation.HookType = hookType
		cb.Request = &bridgev1.Callback_Hook{Hook: invocation}
	})
}

func before(tool string) *bridgev1.Callback {
	return hook("preToolUse", &cliv1.HookInvocation{Data: &cliv1.HookInvocation_PreToolUse{
		PreToolUse: &cliv1.HookPreToolUseInput{ToolName: tool},
	}})
}

func TestHandlersAreAnnounced(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	_, a := session(t, f, c, copilot.SessionOptions{
		OnUserInput: func(context.Context, *copilot.UserInputRequest) (*copilot.UserInputAnswer,
			error) {
			return nil, nil
		},
		OnCommand: func(context.Context, *copilot.Command) error { return nil },
		OnHooks: copilot.Hooks{
			PreToolUse: func(context.Context, *cliv1.HookPreToolUseInput) (*cliv1.HookPreToolUseOutput, error) {
				return nil, nil
			},
			SubagentStop: func(context.Context, *cliv1.HookSubagentStopInput) error { return nil },
		},
		Handlers: []copilot.Handler{copilot.Handle(
			func(context.Context, *cliv1.CallbackCanvasServiceOpenRequest) (*cliv1.CallbackCanvasServiceOpenResponse,
				error) {
				return nil, nil
			},
		)},
	})
	want := &bridgev1.Handlers{
		Kinds: []bridgev1.CallbackKind{
			bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT, bridgev1.CallbackKind_CALLBACK_KIND_HOOK,
			bridgev1.CallbackKind_CALLBACK_KIND_COMMAND, bridgev1.CallbackKind_CALLBACK_KIND_CANVAS_OPEN,
		},
		HookTypes: []string{"preToolUse", "subagentStop"},
	}
	if got := a.start.GetHandlers(); !proto.Equal(got, want) {
		t.Errorf("handlers = %v, want %v", got, want)
	}
}

// All hooks are of interest as soon as one handler takes them all.
func TestHandlerOfAllHooks(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	all := func(_ context.Context, in *cliv1.HookInvocation) (*cliv1.HookOutput, error) {
		if in.GetHookType() == "agentStop" {
			return &cliv1.HookOutput{Variant: &cliv1.HookOutput_AgentStop{AgentStop: &cliv1.HookAgentStopOutput{Reason: proto.String("go on")}}}, nil
		}
		return nil, nil
	}
	_, a := session(t, f, c, copilot.SessionOptions{
		OnHooks: copilot.Hooks{
			PreToolUse: func(context.Context, *cliv1.HookPreToolUseInput) (*cliv1.HookPreToolUseOutput, error) {
				return &cliv1.HookPreToolUseOutput{AdditionalContext: proto.String("own")}, nil
			},
		},
		Handlers: []copilot.Handler{copilot.Handle(all)},
	})
	if types := a.start.GetHandlers().GetHookTypes(); len(types) != 0 {
		t.Errorf("hook types = %q, want all", types)
	}
	a.ask(before("bash"))
	if got := a.answer().GetAnswer().GetHook().GetPreToolUse().GetAdditionalContext(); got != "own" {
		t.Errorf("the handler of all hooks answered in the place of the one of the type: %q", got)
	}
	a.ask(hook("agentStop", &cliv1.HookInvocation{}))
	if got := a.answer().GetAnswer().GetHook().GetAgentStop().GetReason(); got != "go on" {
		t.Errorf("reason = %q", got)
	}
	a.ask(hook("sessionEnd", &cliv1.HookInvocation{}))
	if got := a.answer().GetAnswer(); got.GetHook() == nil || got.GetHook().GetVariant() != nil {
		t.Errorf("answer = %v, want no opinion", got)
	}
}

func TestHandlersAnswer(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	_, a := session(t, f, c, copilot.SessionOptions{
		OnUserInput: func(ctx context.Context, r *copilot.UserInputRequest) (*copilot.UserInputAnswer, error) {
			if call, ok := copilot.CallFrom(ctx); !ok || call.CallbackID != r.GetQuestion() {
				return nil, errors.New("which call is it?")
			}
			switch r.GetQuestion() {
			case "nothing":
				return nil, nil
			case "others":
				return nil, copilot.ErrAbstain
			case "boom":
				panic("boom")
			}
			return &copilot.UserInputAnswer{Answer: "to " + r.GetQuestion(), WasFreeform: true}, nil
		},
		OnCommand: func(_ context.Context, cmd *copilot.Command) error {
			if cmd.GetCommandName() == "bad" {
				return errors.New("no such place")
			}
			return nil
		},
		OnProviderToken: func(_ context.Context, provider string) (string,
			error) {
			return "token of " + provider, nil
		},
		OnHooks: copilot.Hooks{
			PreToolUse: func(_ context.Context, in *cliv1.HookPreToolUseInput) (*cliv1.HookPreToolUseOutput, error) {
				return &cliv1.HookPreToolUseOutput{PermissionDecisionReason: proto.String("no " +
					in.GetToolName())}, nil
			},
			SubagentStop: func(context.Context, *cliv1.HookSubagentStopInput) error { return nil },
		},
	})
	command := func(name string) *bridgev1.Callback {
		return question(name, bridgev1.CallbackKind_CALLBACK_KIND_COMMAND, func(cb *bridgev1.Callback) {
			cb.Request = &bridgev1.Callback_Command{Command: &copilot.Command{CommandName: name}}
		})
	}
	token := question("t", bridgev1.CallbackKind_CALLBACK_KIND_PROVIDER_TOKEN, func(cb *bridgev1.Callback) {
		cb.Request = &bridgev1.Callback_ProviderToken{ProviderToken: &cliv1.CallbackProviderTokenServiceGetTokenRequest{ProviderName: "p"}}
	})
	unknown := question("u", bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT, func(cb *bridgev1.Callback) {
		cb.Request = &bridgev1.Callback_Raw{Raw: &bridgev1.RawCallback{Method: "userInput.request", ParamsJson: "7"}}
	})
	stopped := hook("subagentStop",
		&cliv1.HookInvocation{Data: &cliv1.HookInvocation_SubagentStop{SubagentStop: &cliv1.HookSubagentStopInput{}}})
	for name, tc := range map[string]struct {
		ask  *bridgev1.Callback
		want string
	}{
		"user input":     {userInput("q"), `"answer":"to q"`},
		"nothing":        {userInput("nothing"), "The handler failed."},
		"abstain":        {userInput("others"), "abstain"},
		"panic":          {userInput("boom"), "The handler failed."},
		"unknown form":   {unknown, "form that its handler does not know"},
		"command":        {command("good"), "command:{}"},
		"command fails":  {command("bad"), "no such place"},
		"provider token": {token, `"token of p"`},
		"hook":           {before("bash"), `"no bash"`},
		"silent hook":    {stopped, "hook:{}"},
	} {
		a.ask(tc.ask)
		if got := a.answer().GetAnswer().String(); !strings.Contains(unspaced(got), unspaced(tc.want)) {
			t.Errorf("%s: answer = %s, want %s", name, got, tc.want)
		}
	}
}

// unspaced makes the text of messages, whose spaces vary, comparable.
func unspaced(text string) string {
	return strings.NewReplacer(" ", "", `"answer"`, "answer").Replace(text)
}

func TestHandlersThatDoNotFit(t *testing.T) {
	t.Parallel()
	_, c := newFake(t)
	open := copilot.Handle(func(context.Context,
		*cliv1.CallbackCanvasServiceOpenRequest) (*cliv1.CallbackCanvasServiceOpenResponse, error) {
		return nil, nil
	})
	for want, opts := range map[string]copilot.SessionOptions{
		"two handlers": {Handlers: []copilot.Handler{open, open}},
		"no callback has the request": {Handlers: []copilot.Handler{copilot.Handle(
			func(context.Context, *cliv1.SessionConfig) (*cliv1.HookOutput, error) { return nil, nil })}},
		"the answer to": {Handlers: []copilot.Handler{copilot.Handle(
			func(context.Context, *copilot.UserInputRequest) (*cliv1.HookOutput, error) { return nil, nil })}},
		"is handled by the session's tools": {Handlers: []copilot.Handler{copilot.Handle(
			func(context.Context, *cliv1.PermissionRequestedData) (*cliv1.PermissionDecision, error) {
				return nil, nil
			})}},
		"needs the types": {Handlers: []copilot.Handler{copilot.Handle(
			func(context.Context, proto.Message) (proto.Message, error) { return nil, nil })}},
		"has a type of its own": {OnRequest: map[string]copilot.RequestHandler{
			"userInput.request": func(context.Context, *copilot.Request) (any, error) { return nil, nil }}},
	} {
		if _, err := c.CreateSession(testContext(t), opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %q", err, want)
		}
	}
}

func TestAnswerWith(t *testing.T) {
	t.Parallel()
	a, err := copilot.AnswerWith(&copilot.UserInputAnswer{Answer: "x"})
	if err != nil || a.GetUserInput().GetAnswer() != "x" {
		t.Errorf("user input: %v, %v", a, err)
	}
	a, err = copilot.AnswerWith(&cliv1.HookPreToolUseOutput{AdditionalContext: proto.String("y")})
	if err != nil || a.GetHook().GetPreToolUse().GetAdditionalContext() != "y" {
		t.Errorf("hook: %v, %v", a, err)
	}
	if a, err = copilot.AnswerWith(&cliv1.SessionConfig{}); err == nil {
		t.Errorf("a configuration is an answer: %v", a)
	}
}
