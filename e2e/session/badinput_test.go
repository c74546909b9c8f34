package session

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// badCall is a call that is to fail, and how.
type badCall struct {
	name   string
	call   func(context.Context, *copilot.Client) error
	code   codes.Code
	reason bridgev1.ErrorReason
	field  string
}

// unary is a call by its method and request.
func unary[Req, Resp any](
	method func(*copilot.Client) func(context.Context, *Req, ...grpc.CallOption) (*Resp, error), req *Req,
) func(context.Context, *copilot.Client) error {
	return func(ctx context.Context, c *copilot.Client) error {
		_, err := method(c)(ctx, req)
		return err
	}
}

// streamed is a call whose first message is waited for.
func streamed[Req, Resp any](
	method func(*copilot.Client) func(context.Context, *Req, ...grpc.CallOption) (grpc.ServerStreamingClient[Resp],
		error), req *Req,
) func(context.Context, *copilot.Client) error {
	return func(ctx context.Context, c *copilot.Client) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := method(c)(ctx, req)
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}
}

// attaching is an Attach stream by its frames: the first frame of the reply is waited for,
// or, where there are several, the end.
func attaching(frames ...*bridgev1.AttachRequest) func(context.Context, *copilot.Client) error {
	return func(ctx context.Context, c *copilot.Client) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := c.Callbacks().Attach(ctx)
		if err != nil {
			return err
		}
		for _, frame := range frames {
			_ = stream.Send(frame) // receiving says why it failed
		}
		_, err = stream.Recv()
		for err == nil && len(frames) > 1 {
			_, err = stream.Recv()
		}
		return err
	}
}

func startFrame(start *bridgev1.AttachStart) *bridgev1.AttachRequest {
	return &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: start}}
}

// wantAllBad makes the calls, and then checks that all sessions still work.
func wantAllBad(st *harness.Scripted, s *copilot.Session, calls []badCall) {
	st.T.Helper()
	for _, c := range calls {
		st.T.Run(c.name, func(t *testing.T) {
			e := harness.WantField(t, c.call(st.Ctx, st.Client), c.code, c.reason, c.field)
			if e.Message == "" {
				t.Error("the error says nothing")
			}
		})
	}
	if out := st.Say(s, "all well?"); out.Text() != "You said: all well?" {
		st.T.Errorf("afterwards the agent said %q", out.Text())
	}
}

// The methods, by short names.
var (
	createSession = func(c *copilot.Client) func(context.Context, *bridgev1.CreateSessionRequest,
		...grpc.CallOption) (*bridgev1.CreateSessionResponse, error) {
		return c.Sessions().CreateSession
	}
	resumeSession = func(c *copilot.Client) func(context.Context, *bridgev1.ResumeSessionRequest,
		...grpc.CallOption) (*bridgev1.ResumeSessionResponse, error) {
		return c.Sessions().ResumeSession
	}
	send = func(c *copilot.Client) func(context.Context, *bridgev1.SendRequest,
		...grpc.CallOption) (*bridgev1.SendResponse, error) {
		return c.Sessions().Send
	}
	sendAndWait = func(c *copilot.Client) func(context.Context, *bridgev1.SendAndWaitRequest,
		...grpc.CallOption) (*bridgev1.SendAndWaitResponse, error) {
		return c.Sessions().SendAndWait
	}
	listSessions = func(c *copilot.Client) func(context.Context, *bridgev1.ListSessionsRequest,
		...grpc.CallOption) (*bridgev1.ListSessionsResponse, error) {
		return c.Sessions().ListSessions
	}
	listEvents = func(c *copilot.Client) func(context.Context, *bridgev1.ListEventsRequest,
		...grpc.CallOption) (*bridgev1.ListEventsResponse, error) {
		return c.Sessions().ListEvents
	}
	subscribe = func(c *copilot.Client) func(context.Context, *bridgev1.SubscribeRequest,
		...grpc.CallOption) (grpc.ServerStreamingClient[bridgev1.SubscribeResponse], error) {
		return c.EventStreams().Subscribe
	}
)

// withID are the calls that take a session's id.
func withID(id string) []badCall {
	prompt := &bridgev1.Prompt{Text: "hello"}
	answer, _ := copilot.AnswerTool("x")
	sessions := func(c *copilot.Client) bridgev1.SessionServiceClient { return c.Sessions() }
	of := func(name, field string, call func(context.Context, *copilot.Client) error) badCall {
		return badCall{name: name, field: field, call: call}
	}
	simple := func(name string, call func(context.Context, bridgev1.SessionServiceClient) error) badCall {
		return of(name, "session_id",
			func(ctx context.Context, c *copilot.Client) error { return call(ctx, sessions(c)) })
	}
	return []badCall{
		simple("GetSession", func(ctx context.Context, c bridgev1.SessionServiceClient) error {
			_, err := c.GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: id})
			return err
		}),
		simple("DeleteSession", func(ctx context.Context, c bridgev1.SessionServiceClient) error {
			_, err := c.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: id})
			return err
		}),
		simple("DisconnectSession", func(ctx context.Context, c bridgev1.SessionServiceClient) error {
			_, err := c.DisconnectSession(ctx, &bridgev1.DisconnectSessionRequest{SessionId: id})
			return err
		}),
		simple("Abort", func(ctx context.Context, c bridgev1.SessionServiceClient) error {
			_, err := c.Abort(ctx, &bridgev1.AbortRequest{SessionId: id})
			return err
		}),
		simple("SetModel", func(ctx context.Context, c bridgev1.SessionServiceClient) error {
			_, err := c.SetModel(ctx, &bridgev1.SetModelRequest{SessionId: id, ModelId: "m"})
			return err
		}),
		simple("Log", func(ctx context.Context, c bridgev1.SessionServiceClient) error {
			_, err := c.WriteLog(ctx, &bridgev1.WriteLogRequest{SessionId: id, Message: "m"})
			return err
		}),
		simple("UpdateProvider", func(ctx context.Context, c bridgev1.SessionServiceClient) error {
			_, err := c.UpdateProvider(ctx, &bridgev1.UpdateProviderRequest{SessionId: id})
			return err
		}),
		simple("ProvideCredentials", func(ctx context.Context, c bridgev1.SessionServiceClient) error {
			_, err := c.ProvideCredentials(ctx, &bridgev1.ProvideCredentialsRequest{SessionId: id, GithubToken: "t"})
			return err
		}),
		of("ResumeSession", "session_id", unary(resumeSession, &bridgev1.ResumeSessionRequest{SessionId: id})),
		of("Send", "session_id", unary(send, &bridgev1.SendRequest{SessionId: id, Prompt: prompt})),
		of("SendAndWait", "session_id",
			unary(sendAndWait, &bridgev1.SendAndWaitRequest{SessionId: id, Prompt: prompt})),
		of("ListEvents", "session_id", unary(listEvents, &bridgev1.ListEventsRequest{SessionId: id})),
		of("ListPending", "session_id", func(ctx context.Context, c *copilot.Client) error {
			_, err := c.Callbacks().ListPending(ctx, &bridgev1.ListPendingRequest{SessionId: id})
			return err
		}),
		of("Resolve", "session_id", func(ctx context.Context, c *copilot.Client) error {
			_, err := c.Callbacks().Resolve(ctx,
				&bridgev1.ResolveRequest{SessionId: id, CallbackId: "c", Answer: answer})
			return err
		}),
		of("ReadEvent", "session_id",
			streamed(func(c *copilot.Client) func(context.Context, *bridgev1.ReadEventRequest,
				...grpc.CallOption) (grpc.ServerStreamingClient[bridgev1.ReadEventResponse], error) {
				return c.Sessions().ReadEvent
			}, &bridgev1.ReadEventRequest{SessionId: id, Position: &bridgev1.Position{Epoch: 1, Seq: 1}})),
		of("Run", "session_id",
			streamed(func(c *copilot.Client) func(context.Context, *bridgev1.RunRequest,
				...grpc.CallOption) (grpc.ServerStreamingClient[bridgev1.RunResponse], error) {
				return c.Sessions().Run
			}, &bridgev1.RunRequest{Session: &bridgev1.RunRequest_SessionId{SessionId: id}, Prompt: prompt})),
		of("Subscribe", "sessions[0].session_id", streamed(subscribe, &bridgev1.SubscribeRequest{
			Sessions: []*bridgev1.SessionCursor{{SessionId: id}},
		})),
		of("Attach and join", "start.join_session_id", attaching(startFrame(harness.JoinOf(id, nil)))),
		of("Attach and resume", "start.resume.session_id", attaching(startFrame(&bridgev1.AttachStart{
			Session: &bridgev1.AttachStart_Resume{Resume: &bridgev1.ResumeSessionRequest{SessionId: id}},
		}))),
	}
}

func TestBadSessionID(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]struct {
		id     string
		code   codes.Code
		reason bridgev1.ErrorReason
	}{
		"unknown": {"4b7c1c1e-8a54-4f0b-9d6a-000000000000", codes.NotFound,
			bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND},
		"empty":    {"", codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
		"a path":   {"../../etc/passwd", codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
		"too long": {strings.Repeat("x", 129), codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := harness.NewScripted(t)
			calls := withID(bad.id)
			if bad.id == "" { // without an id it lists what waits in all sessions
				calls = slices.DeleteFunc(calls, func(c badCall) bool { return c.name == "ListPending" })
			}
			for i := range calls {
				calls[i].code, calls[i].reason = bad.code, bad.reason
			}
			wantAllBad(st, st.Create(copilot.SessionOptions{}), calls)
		})
	}
}

func TestBadPrompt(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{})
	info, err := st.Client.ServerInfo(st.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string, p *bridgev1.Prompt, reason bridgev1.ErrorReason, field string) badCall {
		return badCall{
			name: name, call: unary(send, &bridgev1.SendRequest{SessionId: s.ID(), Prompt: p}),
			code: codes.InvalidArgument, reason: reason, field: field,
		}
	}
	const (
		empty     = bridgev1.ErrorReason_ERROR_REASON_PROMPT_EMPTY
		tooLarge  = bridgev1.ErrorReason_ERROR_REASON_PROMPT_TOO_LARGE
		invalid   = bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD
		forbidden = bridgev1.ErrorReason_ERROR_REASON_JSON_EXTRA_FORBIDDEN
	)
	wantAllBad(st, s, []badCall{
		of("missing", nil, empty, "prompt.text"),
		of("empty", &bridgev1.Prompt{}, empty, "prompt.text"),
		of("blank", &bridgev1.Prompt{Text: " \n\t"}, empty, "prompt.text"),
		of("over the cap", &bridgev1.Prompt{Text: strings.Repeat("x", int(info.GetLimits().GetMaxPromptBytes())+1)},
			tooLarge, "prompt.text"),
		of("unknown mode", &bridgev1.Prompt{Text: "x", Mode: 99}, invalid, "prompt.mode"),
		of("unknown agent mode", &bridgev1.Prompt{Text: "x", AgentMode: 99}, invalid, "prompt.agent_mode"),
		of("unknown header strategy",
			&bridgev1.Prompt{Text: "x", HeaderStrategy: 99, RequestHeaders: map[string]string{"a": "b"}}, invalid,
			"prompt.header_strategy"),
		of("session id in json_extra", &bridgev1.Prompt{Text: "x", JsonExtra: `{"sessionId":"other"}`}, forbidden,
			"prompt.json_extra"),
		of("declared member in json_extra", &bridgev1.Prompt{Text: "x", JsonExtra: `{"prompt":"other"}`}, forbidden,
			"prompt.json_extra"),
		of("json_extra that is no object", &bridgev1.Prompt{Text: "x", JsonExtra: `[1]`}, invalid, "prompt.json_extra"),
		of("json_extra that is no JSON", &bridgev1.Prompt{Text: "x", JsonExtra: `{"a":`}, invalid, "prompt.json_extra"),
	})
}

func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{})
	const (
		invalid   = bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD
		forbidden = bridgev1.ErrorReason_ERROR_REASON_JSON_EXTRA_FORBIDDEN
		badName   = bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_INVALID
		refused   = bridgev1.ErrorReason_ERROR_REASON_SESSION_REFUSED
	)
	of := func(name string, change func(*bridgev1.CreateSessionRequest), code codes.Code, reason bridgev1.ErrorReason,
		field string) badCall {
		req := &bridgev1.CreateSessionRequest{Config: st.Config()}
		change(req)
		return badCall{name: name, call: unary(createSession, req), code: code, reason: reason, field: field}
	}
	tools := func(names ...string) func(*bridgev1.CreateSessionRequest) {
		return func(r *bridgev1.CreateSessionRequest) {
			for _, name := range names {
				r.Config.Tools = append(r.Config.Tools, harness.Declared(name).Definition)
			}
		}
	}
	type create = bridgev1.CreateSessionRequest
	wantAllBad(st, s, []badCall{
		of("tool name with a space", tools("good", "not good"), codes.InvalidArgument, badName, "config.tools[1].name"),
		of("tool name that is empty", tools(""), codes.InvalidArgument, badName, "config.tools[0].name"),
		of("tool name twice", tools("same", "same"), codes.AlreadyExists,
			bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_CONFLICT, "config.tools[1].name"),
		of("id that exists", func(r *create) { r.SessionId = s.ID() }, codes.AlreadyExists,
			bridgev1.ErrorReason_ERROR_REASON_SESSION_EXISTS, "session_id"),
		of("id that is a path", func(r *create) { r.SessionId = "../x" }, codes.InvalidArgument, invalid, "session_id"),
		of("unknown provider type", func(r *create) { r.Config.Provider.ProviderType = 99 }, codes.InvalidArgument,
			invalid, "config.provider.provider_type"),
		of("unknown lifetime", func(r *create) { r.Lifetime = 99 }, codes.InvalidArgument, invalid, "lifetime"),
		of("session id in json_extra", func(r *create) { r.Config.JsonExtra = `{"sessionId":"x"}` },
			codes.InvalidArgument, forbidden, "config.json_extra"),
		of("declared member in json_extra", func(r *create) { r.Config.JsonExtra = `{"model":"x"}` },
			codes.InvalidArgument, forbidden, "config.json_extra"),
		of("negative callback timeout", func(r *create) { r.CallbackTimeout = durationpb.New(-time.Second) },
			codes.InvalidArgument, invalid, "callback_timeout"),
		of("callback timeout of a year", func(r *create) { r.CallbackTimeout = durationpb.New(365 * 24 * time.Hour) },
			codes.InvalidArgument, invalid, "callback_timeout"),
		of("callback timeout that is none", func(r *create) {
			r.CallbackTimeout = &durationpb.Duration{Seconds: 1, Nanos: -1}
		}, codes.InvalidArgument, invalid, "callback_timeout"),
		of("directory that is not there", func(r *create) {
			r.Config.WorkingDirectory = proto.String("/nonexistent/directory")
		}, codes.FailedPrecondition, refused, ""),
	})
}

// invalidField is a call that is to be refused because of one field.
func invalidField(name, field string, call func(context.Context, *copilot.Client) error) badCall {
	return badCall{
		name: name, call: call, code: codes.InvalidArgument,
		reason: bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD, field: field,
	}
}

func TestBadCalls(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{})
	st.Say(s, "hello")
	id, last := s.ID(), s.Position()
	events := func(change func(*bridgev1.ListEventsRequest)) func(context.Context, *copilot.Client) error {
		req := &bridgev1.ListEventsRequest{SessionId: id}
		change(req)
		return unary(listEvents, req)
	}
	type list = bridgev1.ListEventsRequest
	wantAllBad(st, s, []badCall{
		invalidField("ListSessions: page token", "page_token",
			unary(listSessions, &bridgev1.ListSessionsRequest{PageToken: "garbage"})),
		invalidField("ListSessions: negative page", "page_size",
			unary(listSessions, &bridgev1.ListSessionsRequest{PageSize: -1})),
		invalidField("ListSessions: huge page", "page_size",
			unary(listSessions, &bridgev1.ListSessionsRequest{PageSize: 1001})),
		invalidField("ListEvents: page token", "page_token", events(func(r *list) { r.PageToken = "garbage" })),
		invalidField("ListEvents: tiny page", "page_bytes", events(func(r *list) { r.PageBytes = 5 })),
		invalidField("ListEvents: the future", "after", events(func(r *list) {
			r.After = &bridgev1.Position{Epoch: last.GetEpoch(), Seq: last.GetSeq() + 1000}
		})),
		invalidField("ListEvents: event type", "filter.types", events(func(r *list) {
			r.Filter = &bridgev1.EventFilter{Types: []string{"assistant.*.x"}}
		})),
		invalidField("ListEvents: fidelity", "fidelity", events(func(r *list) { r.Fidelity = 99 })),
		{
			"ReadEvent: no such event", func(ctx context.Context, c *copilot.Client) error {
				_, err := c.Session(id).ReadEvent(ctx,
					&bridgev1.Position{Epoch: last.GetEpoch(), Seq: last.GetSeq() + 1000})
				return err
			}, codes.NotFound, bridgev1.ErrorReason_ERROR_REASON_EVENT_NOT_FOUND, "position",
		},
		invalidField("SendAndWait: idle timeout", "idle_timeout", unary(sendAndWait, &bridgev1.SendAndWaitRequest{
			SessionId: id, Prompt: &bridgev1.Prompt{Text: "x"}, IdleTimeout: durationpb.New(-1),
		})),
		invalidField("SendAndWait: timeout", "timeout", unary(sendAndWait, &bridgev1.SendAndWaitRequest{
			SessionId: id, Prompt: &bridgev1.Prompt{Text: "x"}, Timeout: durationpb.New(-1),
		})),
		invalidField("SetModel: no model", "model_id", func(ctx context.Context, c *copilot.Client) error {
			_, err := c.Session(id).SetModel(ctx, "", "")
			return err
		}),
		invalidField("Log: nothing", "message", func(ctx context.Context, c *copilot.Client) error {
			_, err := c.Session(id).Log(ctx, "")
			return err
		}),
		invalidField("Log: level", "level", func(ctx context.Context, c *copilot.Client) error {
			_, err := c.Session(id).Log(ctx, "x", copilot.LogLevel(99))
			return err
		}),
		invalidField("UpdateProvider: mask", "update_mask", func(ctx context.Context, c *copilot.Client) error {
			_, err := c.Sessions().UpdateProvider(ctx, &bridgev1.UpdateProviderRequest{
				SessionId: id, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"colour"}},
			})
			return err
		}),
	})
}

func TestBadStreams(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{})
	st.Say(s, "hello")
	const unexpected = bridgev1.ErrorReason_ERROR_REASON_FRAME_UNEXPECTED
	id := s.ID()
	following := func(change func(*bridgev1.SubscribeRequest)) func(context.Context, *copilot.Client) error {
		req := &bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: id}},
			Options: &bridgev1.StreamOptions{}}
		change(req)
		return streamed(subscribe, req)
	}
	type sub = bridgev1.SubscribeRequest
	join := func(change func(*bridgev1.AttachStart)) func(context.Context, *copilot.Client) error {
		start := harness.JoinOf(id, nil)
		change(start)
		return attaching(startFrame(start))
	}
	heartbeat := &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Heartbeat{Heartbeat: &bridgev1.AttachHeartbeat{}}}
	wantAllBad(st, s, []badCall{
		invalidField("Subscribe: to nothing", "sessions", following(func(r *sub) { r.Sessions = nil })),
		invalidField("Subscribe: twice", "sessions[1].session_id",
			following(func(r *sub) { r.Sessions = append(r.Sessions, r.Sessions[0]) })),
		invalidField("Subscribe: heartbeat", "options.heartbeat_interval",
			following(func(r *sub) { r.Options.HeartbeatInterval = durationpb.New(time.Millisecond) })),
		invalidField("Subscribe: linger", "options.batch_delay",
			following(func(r *sub) { r.Options.BatchDelay = durationpb.New(time.Second) })),
		invalidField("Subscribe: start", "sessions[0].start", following(func(r *sub) { r.Sessions[0].Start = 99 })),
		invalidField("Attach: nothing", "start.session", attaching(startFrame(&bridgev1.AttachStart{}))),
		invalidField("Attach: grace", "start.grace",
			join(func(s *bridgev1.AttachStart) { s.Grace = durationpb.New(2 * time.Hour) })),
		invalidField("Attach: name", "start.name",
			join(func(s *bridgev1.AttachStart) { s.Name = strings.Repeat("x", 129) })),
		{
			"Attach: tool name", join(func(s *bridgev1.AttachStart) {
				s.Tools = append(s.Tools, harness.Declared("no good").Definition)
			}), codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_INVALID, "start.tools[0].name",
		},
		{"Attach: no start", attaching(heartbeat), codes.FailedPrecondition, unexpected, "start"},
		{"Attach: two starts", attaching(startFrame(harness.JoinOf(id, nil)), startFrame(harness.JoinOf(id, nil))),
			codes.FailedPrecondition, unexpected, "start"},
	})
}

// TestOversizeFrame sends a message over the server's limit.
func TestOversizeFrame(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{})
	info, err := st.Client.ServerInfo(st.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", int(info.GetLimits().GetMaxRequestBytes())+1)
	_, err = s.Send(st.Ctx, text)
	// gRPC refuses it before the server could give a reason.
	harness.WantError(t, err, codes.ResourceExhausted, bridgev1.ErrorReason_ERROR_REASON_UNSPECIFIED)
	st.Say(s, "all well?")
}
