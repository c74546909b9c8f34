package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	v1 "github.com/copilot-grpc/copilot-grpc/e2e/conformance/conformancev1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// query is the arguments of every tool.
type query struct {
	City string `json:"city" jsonschema:"a city"`
	Days int    `json:"days,omitempty"`
}

func (r *runner) options(a *v1.Open) copilot.SessionOptions {
	o := copilot.SessionOptions{
		Tools: r.tools(a.GetSession(), a.GetTools()),
		OnConnection: func(c copilot.ConnectionChange) {
			r.observe(a.GetSession(), "connection", stateName(c.State), "")
		},
		Grace: time.Duration(a.GetGraceMs()) * time.Millisecond,
	}
	for _, name := range a.GetCommands() {
		o.Commands = append(o.Commands, &cliv1.CommandDeclaration{Name: name, Description: "a command"})
	}
	r.addHandlers(&o, a.GetSession(), a.GetHandlers())
	if a.GetHow() == v1.Open_JOIN {
		return o
	}
	o.Labels, o.Clear = a.GetLabels(), a.GetClear()
	o.ContinuePendingWork = a.GetContinuePendingWork()
	o.CallbackTimeout = time.Duration(a.GetCallbackTimeoutMs()) * time.Millisecond
	if a.GetEndWithLastParticipant() {
		o.Lifetime = copilot.LifetimeEndWithLastParticipant
	}
	if a.GetContinueInterruptedTurns() {
		o.InterruptedTurns = copilot.InterruptionContinue
	}
	o.DisableStreaming = a.Streaming != nil && !a.GetStreaming()
	o.Config = &cliv1.SessionConfig{}
	if p := a.GetProvider(); p != nil {
		o.Config.Model, o.Config.WorkingDirectory = proto.String(p.GetModel()), proto.String(a.GetWorkingDirectory())
		o.Config.SkipCustomInstructions = proto.Bool(true)
		o.Config.Provider = &cliv1.ProviderConfig{
			ProviderType: cliv1.ProviderConfigType_PROVIDER_CONFIG_TYPE_OPENAI,
			WireApi:      cliv1.ProviderConfigWireApi_PROVIDER_CONFIG_WIRE_API_COMPLETIONS,
			BaseUrl:      p.GetBaseUrl(), ApiKey: proto.String("offline"),
		}
		if p.GetTokenByCallback() {
			o.Config.Provider.ApiKey, o.Config.Provider.HasBearerTokenProvider = nil, proto.Bool(true)
		}
	}
	return o
}

func stateName(s copilot.ConnectionState) string {
	switch s {
	case copilot.ParticipantExpired:
		return "expired"
	case copilot.RuntimeRestarted:
		return "runtime-restarted"
	}
	return s.String()
}

func (r *runner) tools(session string, list []*v1.Tool) []copilot.Tool {
	var tools []copilot.Tool
	for _, t := range list {
		var opts []copilot.ToolOption
		if t.GetSkipPermission() {
			opts = append(opts, copilot.SkipPermission())
		}
		if t.GetOwnedBySession() {
			opts = append(opts, copilot.OwnedBySession())
		}
		tool := copilot.NewTool(t.GetName(), "Tells about a city.", func(ctx context.Context, q query) (any, error) {
			arguments, err := json.Marshal(q)
			if err != nil {
				return nil, err
			}
			o := r.observe(session, "tool", t.GetName(), string(arguments))
			return r.behave(ctx, o, t.GetBehaviour(), q)
		}, opts...)
		if t.GetDeclaredOnly() {
			tool.Handler = nil
		}
		tools = append(tools, tool)
	}
	return tools
}

func (r *runner) behave(ctx context.Context, o *v1.Observation, b *v1.Behaviour, q query) (any, error) {
	r.wait(ctx, o, b.GetGate())
	switch b := b.GetResult().(type) {
	case *v1.Behaviour_Text:
		return b.Text, nil
	case *v1.Behaviour_Template:
		return strings.ReplaceAll(b.Template, "{city}", q.City), nil
	case *v1.Behaviour_Json:
		var value any
		return value, json.Unmarshal([]byte(b.Json), &value)
	case *v1.Behaviour_Failure:
		return copilot.Failure(b.Failure), nil
	case *v1.Behaviour_Rejected:
		return copilot.Rejected(b.Rejected), nil
	case *v1.Behaviour_Binary:
		return copilot.Binary(b.Binary.GetData(), b.Binary.GetMimeType(), b.Binary.GetText()), nil
	case *v1.Behaviour_Exception:
		return nil, errors.New(b.Exception)
	case *v1.Behaviour_Abstain:
		return nil, copilot.ErrAbstain
	case *v1.Behaviour_Unencodable:
		return make(chan int), nil
	}
	return nil, nil
}

// observe records that a function was called.
func (r *runner) observe(session, kind, name, arguments string) *v1.Observation {
	o := &v1.Observation{Session: session, Kind: kind, Name: name, ArgumentsJson: arguments}
	r.update(func() { r.observations = append(r.observations, o) })
	return o
}

// wait waits at a gate, if there is one.
func (r *runner) wait(ctx context.Context, o *v1.Observation, gate string) {
	if gate == "" {
		return
	}
	if r.await(ctx, func() bool { return r.open[gate] }) != nil {
		r.update(func() { o.Withdrawn = true })
	}
}

// answer observes, waits, and returns the text or the error of an answer.
func (r *runner) answer(ctx context.Context, session, kind, name string, a *v1.Answer) (string, error) {
	r.wait(ctx, r.observe(session, kind, name, ""), a.GetGate())
	if a.GetException() {
		return "", errors.New(a.GetText())
	}
	return a.GetText(), nil
}

func (r *runner) addHandlers(o *copilot.SessionOptions, session string, h *v1.Handlers) {
	if a := h.GetPermission(); a != nil {
		o.OnPermission = func(ctx context.Context, req *copilot.PermissionRequest) (*copilot.Decision, error) {
			r.wait(ctx, r.observe(session, "permission", req.Kind, ""), a.GetGate())
			return decide(req, a)
		}
	}
	if a := h.GetUserInput(); a != nil {
		o.OnUserInput = func(ctx context.Context, req *copilot.UserInputRequest) (*copilot.UserInputAnswer, error) {
			text, err := r.answer(ctx, session, "user_input", req.GetQuestion(), a)
			return &copilot.UserInputAnswer{Answer: text, WasFreeform: true}, err
		}
	}
	if a := h.GetElicitation(); a != nil {
		o.OnElicitation = func(_ context.Context, req *copilot.ElicitationRequest) (*copilot.ElicitationAnswer, error) {
			r.observe(session, "elicitation", req.GetMessage(), "")
			if a.GetUnencodable() {
				return elicited(&v1.Elicitation{Action: "accept", Content: map[string]string{"name": unencodable}}), nil
			}
			return elicited(a), nil
		}
	}
	if a := h.GetExitPlanMode(); a != nil {
		o.OnExitPlanMode = func(_ context.Context, req *copilot.ExitPlanModeRequest) (
			*copilot.ExitPlanModeAnswer, error) {
			r.observe(session, "exit_plan_mode", req.GetSummary(), "")
			return &copilot.ExitPlanModeAnswer{Approved: a.GetApproved()}, nil
		}
	}
	if a := h.GetAutoModeSwitch(); a != nil {
		o.OnAutoModeSwitch = func(ctx context.Context, _ *copilot.AutoModeSwitchRequest) (
			*copilot.AutoModeSwitchAnswer, error) {
			text, err := r.answer(ctx, session, "auto_mode_switch", "", a)
			answer := &copilot.AutoModeSwitchAnswer{}
			switch text {
			case "yes":
				answer.Response = 1
			case "yes-always":
				answer.Response = 2
			case "no":
				answer.Response = 3
			}
			return answer, err
		}
	}
	if a := h.GetCommand(); a != nil {
		o.OnCommand = func(ctx context.Context, c *copilot.Command) error {
			_, err := r.answer(ctx, session, "command", c.GetCommandName(), a)
			return err
		}
	}
	r.addTokens(o, session, h)
	r.addHooks(o, session, h)
	if raw := h.GetRaw(); raw != nil {
		o.OnRequest = map[string]copilot.RequestHandler{
			raw.GetMethod(): func(_ context.Context, req *copilot.Request) (any, error) {
				r.observe(session, "raw", req.Method, string(req.Params))
				if raw.GetUnencodable() {
					return make(chan int), nil
				}
				return json.RawMessage(raw.GetResultJson()), nil
			},
		}
	}
}

func (r *runner) addTokens(o *copilot.SessionOptions, session string, h *v1.Handlers) {
	if a := h.GetProviderToken(); a != nil {
		o.OnProviderToken = func(ctx context.Context, _ string) (string, error) {
			return r.answer(ctx, session, "provider_token", "", a)
		}
	}
	if a := h.GetGithubToken(); a != nil {
		o.OnGitHubToken = func(ctx context.Context, _ *copilot.GitHubTokenRequest) (*copilot.GitHubToken, error) {
			text, err := r.answer(ctx, session, "github_token", "", a)
			return &copilot.GitHubToken{Token: text, ExpiresIn: time.Hour}, err
		}
	}
}

func (r *runner) addHooks(o *copilot.SessionOptions, session string, h *v1.Handlers) {
	if a := h.GetPreToolUse(); a != nil {
		o.OnHooks.PreToolUse = func(ctx context.Context, in *cliv1.HookPreToolUseInput) (
			*cliv1.HookPreToolUseOutput, error) {
			text, err := r.answer(ctx, session, "hook", "preToolUse "+in.GetToolName(), a)
			if a.GetUnencodable() {
				return &cliv1.HookPreToolUseOutput{AdditionalContext: proto.String(unencodable)}, err
			}
			decision := map[string]cliv1.HookPermissionDecision{"allow": 1, "deny": 2, "ask": 3}[text]
			if decision == 0 {
				return nil, err
			}
			return &cliv1.HookPreToolUseOutput{PermissionDecision: decision}, err
		}
	}
	if h.GetPostToolUse() {
		o.OnHooks.PostToolUse = func(_ context.Context, in *cliv1.HookPostToolUseInput) (
			*cliv1.HookPostToolUseOutput, error) {
			r.observe(session, "hook", "postToolUse "+in.GetToolName(), "")
			return nil, nil
		}
	}
	if h.GetUserPromptSubmitted() {
		o.OnHooks.UserPromptSubmitted = func(_ context.Context, in *cliv1.HookUserPromptSubmittedInput) (
			*cliv1.HookUserPromptSubmittedOutput, error) {
			r.observe(session, "hook", "userPromptSubmitted "+in.GetPrompt(), "")
			return nil, nil
		}
	}
}

func decide(req *copilot.PermissionRequest, a *v1.Permission) (*copilot.Decision, error) {
	for _, rule := range a.GetRules() {
		if rule.GetKind() != "" && rule.GetKind() != req.Kind {
			continue
		}
		switch rule.GetDecision() {
		case "approve":
			return copilot.ApproveOnce(), nil
		case "approve-for-session":
			return copilot.ApproveForSession(), nil
		case "reject":
			return copilot.Reject(rule.GetFeedback()), nil
		case "exception":
			return nil, errors.New(rule.GetFeedback())
		}
		break
	}
	return nil, copilot.ErrAbstain
}

func elicited(a *v1.Elicitation) *copilot.ElicitationAnswer {
	action := map[string]cliv1.UIElicitationResponseAction{"accept": 1, "decline": 2, "cancel": 3}[a.GetAction()]
	answer := &copilot.ElicitationAnswer{Action: action}
	for name, text := range a.GetContent() {
		if answer.Content == nil {
			answer.Content = map[string]*cliv1.UIElicitationFieldValue{}
		}
		value := &cliv1.UIElicitationFieldValue_StringValue{StringValue: text}
		answer.Content[name] = &cliv1.UIElicitationFieldValue{Variant: value}
	}
	return answer
}

// logged is a log whose warnings and errors are observations.
type logged struct{ runner *runner }

func (l logged) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (l logged) Handle(_ context.Context, entry slog.Record) error {
	entry.Attrs(func(a slog.Attr) bool {
		if a.Key == "callback_id" {
			l.runner.observe("", "log", "", "")
		}
		return true
	})
	return nil
}

func (l logged) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l logged) WithGroup(string) slog.Handler      { return l }

// unencodable is no text of protocol buffers, which are UTF-8.
const unencodable = "\xff"
