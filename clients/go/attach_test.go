package copilot_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// opened is what opening a session came to.
type opened struct {
	s   *copilot.Session
	err error
}

// open creates a session in the background, for the test to play the server meanwhile.
func open(t *testing.T, c *copilot.Client, opts copilot.SessionOptions) <-chan opened {
	t.Helper()
	ctx := testContext(t)
	ch := make(chan opened, 1)
	go func() {
		s, err := c.CreateSession(ctx, opts)
		ch <- opened{s, err}
	}()
	return ch
}

// session creates a session and gives both its ends.
func session(t *testing.T, f *fake, c *copilot.Client, opts copilot.SessionOptions) (*copilot.Session, *attach) {
	t.Helper()
	ch := open(t, c, opts)
	a := f.attached(t)
	o := receive(t, ch, "session")
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.s, a
}

func toolCall(id, tool, args string) *bridgev1.Callback {
	return &bridgev1.Callback{
		CallbackId: id, SessionId: "s1", Kind: bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL,
		ParticipantIds: []string{"p1"},
		Request: &bridgev1.Callback_ToolCall{ToolCall: &cliv1.ExternalToolRequestedData{
			RequestId: id, ToolCallId: "call-" + id, ToolName: tool, ArgumentsJson: proto.String(args),
			Traceparent: proto.String("00-trace"),
		}},
	}
}

func TestCreateSaysEverythingInItsFirstFrame(t *testing.T) {
	t.Parallel()
	f, c := newFake(t, copilot.WithName("unit"))
	config := &cliv1.SessionConfig{Model: proto.String("gpt")}
	_, a := session(t, f, c, copilot.SessionOptions{
		ID: "mine", Config: config, Lifetime: copilot.LifetimeKeep, ProviderRef: "ours",
		OnPermission:   copilot.ApproveAll,
		Commands:       []*cliv1.CommandDeclaration{{Name: "tidy"}},
		Canvases:       []*cliv1.CanvasDeclaration{{Id: "map"}},
		CanvasProvider: &cliv1.CanvasProviderIdentity{Id: "maps"},
		ExtensionInfo:  &cliv1.ExtensionIdentity{Name: "cartographer"},
		OnRequest: map[string]copilot.RequestHandler{
			"new.request": func(context.Context, *copilot.Request) (any, error) { return nil, nil },
		},
		Tools: []copilot.Tool{
			copilot.NewTool("b", "", func(context.Context, struct{}) (string, error) { return "", nil }),
			copilot.NewTool("a", "", func(context.Context, struct{}) (string, error) { return "", nil }),
			copilot.NewTool("own", "", func(context.Context, struct{}) (string, error) { return "", nil },
				copilot.OwnedBySession()),
		},
	})
	create := a.start.GetCreate()
	if create.GetSessionId() != "mine" || create.GetRequestId() == "" || create.GetConfig().GetModel() != "gpt" {
		t.Errorf("create = %v", create)
	}
	if tools := create.GetConfig().GetTools(); len(tools) != 1 || tools[0].GetName() != "own" {
		t.Errorf("the session's tools = %v", tools)
	}
	if len(config.GetTools()) != 0 {
		t.Error("the caller's configuration was changed")
	}
	if tools := a.start.GetTools(); len(tools) != 2 || tools[0].GetName() != "a" || tools[1].GetName() != "b" {
		t.Errorf("the participant's tools = %v", tools)
	}
	if h := a.start.GetHandlers(); !h.GetPermission() || len(h.GetMethods()) != 1 || len(h.GetKinds()) != 0 {
		t.Errorf("handlers = %v", h)
	}
	if create.GetProviderRef() != "ours" {
		t.Errorf("the provider is %q", create.GetProviderRef())
	}
	if s := a.start; len(s.GetCommands()) != 1 || len(s.GetCanvases()) != 1 ||
		s.GetCanvasProvider().GetId() != "maps" || s.GetExtensionInfo().GetName() != "cartographer" {
		t.Errorf("the participant's own = %v", s)
	}
	if a.start.GetName() != "unit" {
		t.Errorf("name = %q", a.start.GetName())
	}
}

func TestStreamingIsOnUnlessSaidOtherwise(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		opts copilot.SessionOptions
		want bool
	}{
		"default":             {copilot.SessionOptions{}, true},
		"switched off":        {copilot.SessionOptions{DisableStreaming: true}, false},
		"other configuration": {copilot.SessionOptions{Config: &cliv1.SessionConfig{Model: proto.String("m")}}, true},
		"configuration: no": {
			copilot.SessionOptions{Config: &cliv1.SessionConfig{Streaming: proto.Bool(false)}}, false,
		},
		"configuration: yes": {
			copilot.SessionOptions{DisableStreaming: true, Config: &cliv1.SessionConfig{Streaming: proto.Bool(true)}}, true,
		},
	} {
		f, c := newFake(t)
		_, a := session(t, f, c, tc.opts)
		if got := a.start.GetCreate().GetConfig(); got.Streaming == nil || got.GetStreaming() != tc.want {
			t.Errorf("%s: config = %v, want streaming %v", name, got, tc.want)
		}
		if tc.opts.Config != nil && name == "other configuration" && tc.opts.Config.Streaming != nil {
			t.Errorf("%s: the program's own message was changed", name)
		}
	}
}

func TestOpeningFails(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	bad := copilot.NewTool("bad", "", func(context.Context, int) (string, error) { return "", nil })
	for name, tc := range map[string]struct {
		open func(context.Context) (*copilot.Session, error)
		want string
	}{
		"tool without object schema": {func(ctx context.Context) (*copilot.Session, error) {
			return c.CreateSession(ctx, copilot.SessionOptions{Tools: []copilot.Tool{bad}})
		}, `tool "bad"`},
		"two tools of a name": {func(ctx context.Context) (*copilot.Session, error) {
			tool := copilot.Tool{Definition: &cliv1.ToolDefinition{Name: "x"}}
			return c.CreateSession(ctx, copilot.SessionOptions{Tools: []copilot.Tool{tool, tool}})
		}, `two tools named "x"`},
		"join with configuration": {func(ctx context.Context) (*copilot.Session, error) {
			return c.JoinSession(ctx, "s1", copilot.SessionOptions{Config: &cliv1.SessionConfig{}})
		}, "changes nothing"},
		"join with a provider": {func(ctx context.Context) (*copilot.Session, error) {
			return c.JoinSession(ctx, "s1", copilot.SessionOptions{ProviderRef: "ours"})
		}, "changes nothing"},
		"join and clear": {func(ctx context.Context) (*copilot.Session, error) {
			return c.JoinSession(ctx, "s1", copilot.SessionOptions{Clear: []string{"tools"}})
		}, "changes nothing"},
		"resume with an id": {func(ctx context.Context) (*copilot.Session, error) {
			return c.ResumeSession(ctx, "s1", copilot.SessionOptions{ID: "s2"})
		}, `the id "s2"`},
		"refused by the server": {func(ctx context.Context) (*copilot.Session, error) {
			go func() {
				a := <-f.attaches
				a.end <- failure(codes.AlreadyExists, "SESSION_EXISTS", "it exists")
			}()
			return c.CreateSession(ctx, copilot.SessionOptions{ID: "s1"})
		}, "SESSION_EXISTS"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tc.open(testContext(t)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("err = %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestOpeningIsRepeatedUnderTheSameRequestID(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	ch := open(t, c, copilot.SessionOptions{})
	first := receive(t, f.attaches, "attach stream")
	first.end <- failure(codes.Unavailable, "", "away")
	second := f.attached(t)
	if o := receive(t, ch, "session"); o.err != nil {
		t.Fatal(o.err)
	}
	if a, b := first.start.GetCreate().GetRequestId(), second.start.GetCreate().GetRequestId(); a != b || a == "" {
		t.Errorf("request ids %q and %q", a, b)
	}
}

// A client logs why the server makes it wait, when it opens a session and when it sends a prompt.
func TestProgressIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f, c := newFake(t, copilot.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	ch := open(t, c, copilot.SessionOptions{})
	a := receive(t, f.attaches, "attach stream")
	a.t = t
	a.send(&bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Progress{
		Progress: &bridgev1.Progress{Detail: "installing"},
	}})
	a.begin()
	o := receive(t, ch, "session")
	if o.err != nil {
		t.Fatal(o.err)
	}
	outcome := make(chan error, 1)
	go func() {
		_, err := o.s.Run(testContext(t), "hello").Outcome()
		outcome <- err
	}()
	next(t, f.runs).send(
		&bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Progress{Progress: &bridgev1.Progress{Detail: "starting"}}},
		&bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Outcome{Outcome: &bridgev1.TurnOutcome{
			Status: bridgev1.TurnStatus_TURN_STATUS_COMPLETED,
		}}},
	)
	if err := receive(t, outcome, "outcome"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"detail=installing", "detail=starting"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, &log)
		}
	}
}

func TestContextBoundsOnlyTheOpening(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	ctx, cancel := context.WithCancel(testContext(t))
	ch := make(chan opened, 1)
	go func() {
		s, err := c.CreateSession(ctx, copilot.SessionOptions{})
		ch <- opened{s, err}
	}()
	a := f.attached(t)
	o := receive(t, ch, "session")
	cancel()
	a.ask(toolCall("1", "gone", "{}"))
	if a.answer().GetAnswer().GetAbstain() == nil { // the stream is alive, and the tool unknown
		t.Error("an unknown tool was answered")
	}
	if o.s.Err() != nil {
		t.Errorf("err = %v", o.s.Err())
	}

	ctx, cancel = context.WithCancel(testContext(t))
	go func() {
		_, err := c.CreateSession(ctx, copilot.SessionOptions{})
		ch <- opened{nil, err}
	}()
	receive(t, f.attaches, "attach stream")
	cancel()
	if o := receive(t, ch, "end of opening"); !errors.Is(o.err, context.Canceled) {
		t.Errorf("err = %v, want canceled", o.err)
	}
}

func TestReattachTakesThePlaceAndRepeatsTheAnswer(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	calls, release := make(chan string, 8), make(chan struct{})
	s, a := session(t, f, c, copilot.SessionOptions{Tools: []copilot.Tool{
		copilot.NewTool("slow", "", func(ctx context.Context, _ struct{}) (string, error) {
			call, _ := copilot.CallFrom(ctx)
			calls <- call.CallbackID
			<-release
			return "done", nil
		}),
	}})
	a.tell(heartbeatFrame(7))
	running := toolCall("1", "slow", "{}")
	a.ask(running)
	receive(t, calls, "call")
	a.end <- failure(codes.Unavailable, "", "cut")

	// The tool runs on, and its answer goes out on the new stream.
	a = f.attached(t, running)
	if got := a.start; got.GetParticipantToken() != "secret" || got.GetJoinSessionId() != "s1" ||
		got.GetAfter().GetSeq() != 7 {
		t.Errorf("start = %v", got)
	}
	if len(a.start.GetTools()) != 1 {
		t.Errorf("tools = %v", a.start.GetTools())
	}
	close(release)
	if got := a.answer(); got.GetCallbackId() != "1" || got.GetAnswer().GetTool().GetText() != "done" {
		t.Errorf("answer = %v", got)
	}

	// The answer may not have arrived: the participant sends it again, without a second run.
	a.end <- failure(codes.Unavailable, "", "cut")
	a = f.attached(t, running)
	a.ask(running)
	if got := a.answer(); got.GetAnswer().GetTool().GetText() != "done" {
		t.Errorf("answer = %v", got)
	}
	a.done("1")
	a.ask(toolCall("2", "slow", "{}"))
	if got := a.answer(); got.GetCallbackId() != "2" {
		t.Errorf("answer = %v", got)
	}
	if id := receive(t, calls, "call"); id != "2" || len(calls) != 0 {
		t.Errorf("call %q, and %d more", id, len(calls))
	}
	if s.Err() != nil || s.Position().GetSeq() != 9 {
		t.Errorf("err = %v, position = %v", s.Err(), s.Position())
	}
}

func TestReattachAnewAfterTheGraceTime(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	s, a := session(t, f, c, copilot.SessionOptions{})
	a.end <- failure(codes.Unavailable, "", "cut")
	a = receive(t, f.attaches, "attach stream")
	a.end <- failure(codes.NotFound, "PARTICIPANT_NOT_FOUND", "too late")
	a = f.attached(t)
	if a.start.GetParticipantToken() != "" || a.start.GetJoinSessionId() != "s1" {
		t.Errorf("start = %v", a.start)
	}
	if s.Err() != nil {
		t.Error(s.Err())
	}
}

func TestGoAwayHandsThePlaceOver(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	_, old := session(t, f, c, copilot.SessionOptions{})
	old.tell(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_GoAway{
		GoAway: &bridgev1.GoAway{Reason: bridgev1.GoAwayReason_GO_AWAY_REASON_DRAINING},
	}})
	a := receive(t, f.attaches, "attach stream")
	if a.start.GetParticipantToken() != "secret" {
		t.Errorf("token = %q", a.start.GetParticipantToken())
	}
	if err := old.out.Context().Err(); err != nil {
		t.Errorf("the old stream ended before the new one began: %v", err)
	}
	a.t = t
	a.send(&bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Started{Started: &bridgev1.AttachStarted{
		ParticipantId: "p1", ParticipantToken: "secret", Resumed: true, Session: &bridgev1.Session{SessionId: "s1"},
	}}})
	for range old.in { // closed when the client drops the old stream
		t.Error("a frame on the old stream")
	}
}

func TestTheParticipationEnds(t *testing.T) {
	t.Parallel()
	closed := func(reason bridgev1.CloseReason) func(*attach) {
		return func(a *attach) {
			a.tell(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Closed{
				Closed: &bridgev1.SubscriptionClosed{Reason: reason},
			}})
		}
	}
	for name, tc := range map[string]struct {
		opts  []copilot.Option
		play  func(*attach)
		check func(error) bool
	}{
		"deleted": {nil, closed(bridgev1.CloseReason_CLOSE_REASON_DELETED), func(err error) bool {
			var ce *copilot.ClosedError
			return errors.As(err, &ce) && ce.Reason == copilot.ClosedDeleted
		}},
		"replaced": {nil, func(a *attach) {
			a.end <- failure(codes.Aborted, "PARTICIPANT_REPLACED", "another stream")
		}, func(err error) bool {
			return copilot.IsReason(err, bridgev1.ErrorReason_ERROR_REASON_PARTICIPANT_REPLACED)
		}},
		"broken without reconnect": {[]copilot.Option{copilot.WithoutReconnect()}, func(a *attach) {
			a.end <- failure(codes.Unavailable, "", "cut")
		}, func(err error) bool {
			var e *copilot.Error
			return errors.As(err, &e) && e.Code == codes.Unavailable
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c := newFake(t, tc.opts...)
			s, a := session(t, f, c, copilot.SessionOptions{})
			if s.Err() != nil {
				t.Error(s.Err())
			}
			tc.play(a)
			<-s.Done()
			if !tc.check(s.Err()) {
				t.Errorf("err = %v", s.Err())
			}
			if err := s.Close(); err != nil {
				t.Errorf("close afterwards: %v", err)
			}
		})
	}
}

func TestCloseLeaves(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	ended := make(chan error, 1)
	s, a := session(t, f, c, copilot.SessionOptions{Tools: []copilot.Tool{
		copilot.NewTool("wait", "", func(ctx context.Context, _ struct{}) (string, error) {
			ended <- nil
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return "", nil
		}),
	}})
	a.ask(toolCall("1", "wait", "{}"))
	receive(t, ended, "call")
	closing := make(chan error, 1)
	go func() { closing <- s.Close() }()
	if a.goodbye().GetDisconnect() {
		t.Error("it disconnected the session")
	}
	if err := receive(t, closing, "close"); err != nil {
		t.Error(err)
	}
	if err := receive(t, ended, "end of the handler"); !errors.Is(err, copilot.ErrClosed) {
		t.Errorf("the handler's cause = %v", err)
	}
	if !errors.Is(s.Err(), copilot.ErrClosed) {
		t.Errorf("err = %v", s.Err())
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestDisconnectSaysSo(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	s, a := session(t, f, c, copilot.SessionOptions{})
	ctx := testContext(t)
	ending := make(chan error, 1)
	go func() { ending <- s.Disconnect(ctx) }()
	if !a.goodbye().GetDisconnect() {
		t.Error("it only left")
	}
	if err := receive(t, ending, "disconnect"); err != nil {
		t.Error(err)
	}
}

func TestClientCloseLeavesEverySession(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	_, a := session(t, f, c, copilot.SessionOptions{})
	_, b := session(t, f, c, copilot.SessionOptions{})
	closing := make(chan error, 1)
	go func() { closing <- c.Close() }()
	a.goodbye()
	b.goodbye()
	if err := receive(t, closing, "close"); err != nil {
		t.Error(err)
	}
	if _, err := c.CreateSession(testContext(t), copilot.SessionOptions{}); err == nil {
		t.Error("a closed client opened a session")
	}
}

func TestSetTools(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	s, a := session(t, f, c, copilot.SessionOptions{})
	say := func(text string) copilot.Tool {
		return copilot.NewTool("say", "", func(context.Context, struct{}) (string, error) { return text, nil })
	}
	set := func(tool copilot.Tool) <-chan error {
		ctx, ch := testContext(t), make(chan error, 1)
		go func() { ch <- s.SetTools(ctx, tool) }()
		return ch
	}
	said := func(a *attach, id string) string {
		a.ask(toolCall(id, "say", "{}"))
		defer a.done(id)
		return a.answer().GetAnswer().GetTool().GetText()
	}

	ch := set(say("one"))
	cmd := receive(t, a.in, "command").GetCommand()
	if tools := cmd.GetSetTools().GetTools(); len(tools) != 1 || tools[0].GetName() != "say" {
		t.Errorf("command = %v", cmd)
	}
	a.send(&bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Done{
		Done: &bridgev1.AttachDone{Subject: &bridgev1.AttachDone_CommandId{CommandId: cmd.GetCommandId()}},
	}})
	if err := receive(t, ch, "reply"); err != nil {
		t.Error(err)
	}

	ch = set(say("two")) // refused: the tools stay
	cmd = receive(t, a.in, "command").GetCommand()
	a.send(&bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Failed{Failed: &bridgev1.AttachFailed{Subject: &bridgev1.AttachFailed_CommandId{CommandId: cmd.GetCommandId()},
		Failure: &bridgev1.Failure{
			Code: int32(codes.AlreadyExists), Reason: bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_CONFLICT,
		},
	}}})
	if err := receive(t, ch, "reply"); !copilot.IsReason(err, bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_CONFLICT) {
		t.Errorf("err = %v", err)
	}
	if got := said(a, "1"); got != "one" {
		t.Errorf("the tool says %q", got)
	}

	ch = set(say("three")) // unanswered: the next stream begins with them
	receive(t, a.in, "command")
	a.end <- failure(codes.Unavailable, "", "cut")
	a = f.attached(t)
	if err := receive(t, ch, "reply"); err != nil {
		t.Error(err)
	}
	if got := said(a, "2"); got != "three" {
		t.Errorf("the tool says %q", got)
	}
}

// The session may end with its last participant, which the CLI then may ask something yet.
func TestAnswersFollowTheGoodbye(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	s, a := session(t, f, c, copilot.SessionOptions{OnPermission: copilot.ApproveAll})
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	if receive(t, a.in, "goodbye").GetLeave() == nil {
		t.Error("the first frame is no goodbye")
	}
	a.ask(permission("p1", &cliv1.PermissionRequest{}))
	if answer := a.answer(); answer.GetAnswer().GetPermission().GetApproveOnce() == nil {
		t.Errorf("the answer is %v", answer)
	}
	a.end <- nil
	<-s.Done()
	if err := receive(t, closed, "end of Close"); err != nil {
		t.Error(err)
	}
}
