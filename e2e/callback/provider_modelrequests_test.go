package callback

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// unreachable is a provider that only a participant can make requests to.
func unreachable(st *harness.Scripted) *cliv1.SessionConfig {
	config := st.Config()
	config.Provider.BaseUrl = "http://127.0.0.1:9/v1"
	return config
}

// transport makes requests by a function, and counts them.
type transport struct {
	do func(*http.Request) (*http.Response, error)
	mu sync.Mutex
	n  int
}

func (tr *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	tr.mu.Lock()
	tr.n++
	tr.mu.Unlock()
	return tr.do(req)
}

func (tr *transport) count() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.n
}

// instead makes the requests to the offline model, in place of their address.
func instead(st *harness.Scripted) *transport {
	return &transport{do: func(req *http.Request) (*http.Response, error) {
		to := req.Clone(req.Context())
		target, err := http.NewRequest(req.Method, st.Model.OpenAIBaseURL()+strings.TrimPrefix(req.URL.Path, "/v1"),
			nil)
		if err != nil {
			return nil, err
		}
		to.URL, to.Host = target.URL, target.URL.Host
		return http.DefaultTransport.RoundTrip(to)
	}}
}

// TestModelRequests are made by a participant, as a stream of events.
func TestModelRequests(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{}, harness.OnUser("work", harness.Call("work", nil)),
		harness.OnResult("work", harness.Say("{{tool_result}} Größe")))
	tr := instead(st)
	s := st.Create(copilot.SessionOptions{
		Config: unreachable(st), ModelTransport: tr, Tools: []copilot.Tool{harness.Answering("work", "done")},
	})
	if out := st.Say(s, "hello"); out.Text() != "You said: hello" {
		t.Errorf("the agent said %q", out.Text())
	}
	if out := st.Say(s, "work"); out.Text() != "done Größe" {
		t.Errorf("the agent said %q", out.Text())
	}
	if n := tr.count(); n != 3 {
		t.Errorf("%d requests were made, want 3", n)
	}
	if deltas := st.All(s, "assistant.message_delta"); len(deltas) == 0 {
		t.Error("the response did not come as a stream")
	}
	if len(st.Ready()) != 2 {
		t.Errorf("the runtimes are %v, want one of the session's own", st.Ready())
	}
}

// failure checks how a turn failed.
func failure(t *testing.T, out *copilot.Outcome, text string) {
	t.Helper()
	if out.Status() != copilot.TurnFailed ||
		!strings.Contains(out.Error().GetMessage(), text) {
		t.Errorf("the turn ended %v, want it to have failed with %q", out, text)
	}
}

// TestModelRequestRefused: a turn whose request no participant makes fails, soon and once.
func TestModelRequestRefused(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{})
	start := bridgev1.CallbackKind_CALLBACK_KIND_MODEL_REQUEST_START
	handlers := &bridgev1.Handlers{Kinds: []bridgev1.CallbackKind{start,
		bridgev1.CallbackKind_CALLBACK_KIND_MODEL_REQUEST_CHUNK}}
	open := func(timeout time.Duration) *copilot.Session {
		return st.Create(copilot.SessionOptions{
			Config: unreachable(st), SessionHandlers: handlers, CallbackTimeout: timeout,
			RuntimeProfile: &bridgev1.RuntimeProfile{ModelInference: &bridgev1.ModelInference{Key: "shared"}},
		})
	}
	t.Run("declined", func(t *testing.T) {
		s := open(0)
		p := st.Attach(harness.JoinOf(s.ID(), handlers))
		ended := st.GoTurn(s, "hello")
		cb := p.Asked(start)
		if r := cb.GetModelRequestStart(); r.GetMethod() != http.MethodPost ||
			!strings.HasSuffix(r.GetUrl(), "/chat/completions") || r.GetSessionId() != s.ID() {
			t.Errorf("asked %v", cb)
		}
		p.Answer(cb.GetCallbackId(),
			&bridgev1.Answer{Answer: &bridgev1.Answer_Error{Error: &bridgev1.AnswerError{Message: "not today"}}})
		failure(t, ended(), "not today")
	})
	t.Run("unanswered", func(t *testing.T) {
		failure(t, st.GoTurn(open(300*time.Millisecond), "hello")(), "no participant answered in time")
	})
	t.Run("taken and never answered", func(t *testing.T) {
		s := open(300 * time.Millisecond)
		p := st.Attach(harness.JoinOf(s.ID(), handlers))
		ended := st.GoTurn(s, "hello")
		answered := p.Answer(p.Asked(start).GetCallbackId(), took(t))
		if answered.Failed != nil {
			t.Fatalf("the answer was refused: %v", answered.Failed)
		}
		chunk := p.Asked(bridgev1.CallbackKind_CALLBACK_KIND_MODEL_REQUEST_CHUNK)
		if !chunk.GetModelRequestChunk().GetEnd() ||
			!strings.Contains(chunk.GetModelRequestChunk().GetData(), "hello") {
			t.Errorf("the request's body is %v", chunk)
		}
		failure(t, ended(), "in time")
	})
	t.Run("participant gone", func(t *testing.T) {
		s := open(0)
		p := st.Attach(harness.JoinOf(s.ID(), handlers))
		ended := st.GoTurn(s, "hello")
		p.Answer(p.Asked(start).GetCallbackId(), took(t))
		p.Asked(bridgev1.CallbackKind_CALLBACK_KIND_MODEL_REQUEST_CHUNK)
		p.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Leave{Leave: &bridgev1.AttachLeave{}}})
		failure(t, ended(), "")
	})
	t.Run("wrong answers, and a piece declined", func(t *testing.T) {
		s := open(0)
		p := st.Attach(harness.JoinOf(s.ID(), handlers))
		ended := st.GoTurn(s, "hello")
		answer := func(kind bridgev1.CallbackKind, right *bridgev1.Answer) {
			t.Helper()
			cb := p.Asked(kind)
			for _, wrong := range (&asker{Scripted: st, question: question{kind: kind}}).bad() {
				if r := p.Answer(cb.GetCallbackId(),
					wrong); r.Failed.GetReason() != bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID {
					t.Errorf("%v: %v came to %v", kind, wrong, r)
				}
			}
			if r := p.Answer(cb.GetCallbackId(), right); r.Failed != nil {
				t.Errorf("%v: the right answer was refused: %v", kind, r.Failed)
			}
		}
		answer(start, took(t))
		answer(bridgev1.CallbackKind_CALLBACK_KIND_MODEL_REQUEST_CHUNK,
			&bridgev1.Answer{Answer: &bridgev1.Answer_Error{Error: failing}})
		failure(t, ended(), "not today")
	})
	t.Run("nobody there", func(t *testing.T) {
		_, err := st.Client.CreateSession(st.Ctx, copilot.SessionOptions{
			Config:         unreachable(st),
			RuntimeProfile: &bridgev1.RuntimeProfile{ModelInference: &bridgev1.ModelInference{}},
		})
		harness.WantError(t, err, codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_HANDLER_MISSING)
	})
}

// took is the answer that takes a request, or a piece of it.
func took(t *testing.T) *bridgev1.Answer {
	t.Helper()
	answer, err := copilot.AnswerWith(&cliv1.CallbackLlmInferenceServiceHttpRequestStartResponse{})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// TestModelRequestOfTwo: of two participants one abstains and the other answers by hand,
// with wrong parts between the right ones.
func TestModelRequestOfTwo(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{})
	start := bridgev1.CallbackKind_CALLBACK_KIND_MODEL_REQUEST_START
	handlers := &bridgev1.Handlers{Kinds: []bridgev1.CallbackKind{start,
		bridgev1.CallbackKind_CALLBACK_KIND_MODEL_REQUEST_CHUNK}}
	s := st.Create(copilot.SessionOptions{
		Config: unreachable(st), SessionHandlers: handlers,
		RuntimeProfile: &bridgev1.RuntimeProfile{ModelInference: &bridgev1.ModelInference{}},
	})
	one, two := st.Attach(harness.JoinOf(s.ID(), handlers)), st.Attach(harness.JoinOf(s.ID(), handlers))
	wait := st.GoSay(s, "hello")
	cb := one.Asked(start)
	one.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{Answer: &bridgev1.CallbackAnswer{
		CallbackId: cb.GetCallbackId(),
		Answer:     &bridgev1.Answer{Answer: &bridgev1.Answer_Abstain{Abstain: &bridgev1.Abstain{}}},
	}}})
	request := two.Asked(start).GetModelRequestStart().GetRequestId()
	part := func(p *bridgev1.ModelResponse) *bridgev1.AttachRequest {
		p.RequestId = request
		return &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_ModelResponse{ModelResponse: p}}
	}
	head := &bridgev1.ModelResponse{Part: &bridgev1.ModelResponse_Head{Head: &bridgev1.ModelResponseHead{
		Status:  http.StatusOK,
		Headers: map[string]*cliv1.StringList{"content-type": {Items: []string{"text/event-stream"}}},
	}}}
	text := func(s string, end bool) *bridgev1.ModelResponse {
		return &bridgev1.ModelResponse{Part: &bridgev1.ModelResponse_Chunk{Chunk: &bridgev1.ModelResponseChunk{
			Data: &bridgev1.ModelResponseChunk_Text{Text: s}, End: end,
		}}}
	}
	for _, wrong := range []*bridgev1.ModelResponse{
		{}, {Part: &bridgev1.ModelResponse_Head{Head: &bridgev1.ModelResponseHead{Status: 1000}}},
		text("too early", false),
	} {
		_, err := st.Client.Callbacks().SendModelResponse(st.Ctx, &bridgev1.SendModelResponseRequest{
			SessionId: s.ID(), Response: func() *bridgev1.ModelResponse { wrong.RequestId = "none"; return wrong }(),
		})
		if e := copilot.FromError(err); !copilot.IsReason(e, bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID) &&
			!copilot.IsReason(e, bridgev1.ErrorReason_ERROR_REASON_CALLBACK_NOT_FOUND) {
			t.Errorf("%v came to %v", wrong, err)
		}
	}
	two.Send(part(head)) // takes the request
	two.Send(part(text(`data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"by hand"},"finish_reason":null}]}`+"\n\n", false)))
	if over := one.Resolved(cb.GetCallbackId()); over.GetParticipantId() != two.ID {
		t.Errorf("the request was taken by %v", over)
	}
	one.Send(part(text("not yours", false)))
	one.Await("the refusal", func() bool {
		for _, f := range one.Frames {
			if f.GetFailed().GetModelRequestId() == request {
				return f.GetFailed().GetFailure().GetReason() == bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED
			}
		}
		return false
	})
	st.First(s, "assistant.message_delta") // parts come one after the other
	// The rest comes by the unary call: any caller may make it, as with Resolve.
	for _, rest := range []*bridgev1.ModelResponse{
		text(`data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n", false),
		text("data: [DONE]\n\n", true),
	} {
		rest.RequestId = request
		if _, err := st.Client.Callbacks().SendModelResponse(st.Ctx,
			&bridgev1.SendModelResponseRequest{SessionId: s.ID(), Response: rest}); err != nil {
			t.Fatal(err)
		}
	}
	if out := wait(); out.Text() != "by hand" {
		t.Errorf("the agent said %q", out.Text())
	}
	_, err := st.Client.Callbacks().SendModelResponse(st.Ctx, &bridgev1.SendModelResponseRequest{
		SessionId: s.ID(), Response: part(text("late", true)).GetModelResponse(),
	})
	harness.WantError(t, copilot.FromError(err), codes.NotFound, bridgev1.ErrorReason_ERROR_REASON_CALLBACK_NOT_FOUND)
}

// TestModelRequestAborted: the request's context ends with the turn, and a response that
// breaks off is tried again.
func TestModelRequestAborted(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{})
	begun, cancelled := make(chan struct{}), make(chan struct{})
	real := instead(st)
	broken := false
	tr := &transport{do: func(req *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		switch {
		case strings.Contains(string(body), "stop me"):
			close(begun)
			<-req.Context().Done()
			close(cancelled)
			return nil, req.Context().Err()
		case !broken:
			broken = true
			return nil, errors.New("connection reset")
		}
		req.Body = io.NopCloser(strings.NewReader(string(body)))
		return real.do(req)
	}}
	s := st.Create(copilot.SessionOptions{Config: unreachable(st), ModelTransport: tr})
	if out := st.Say(s, "try again"); out.Text() != "You said: try again" {
		t.Errorf("the agent said %q", out.Text())
	}
	ended := st.GoTurn(s, "stop me")
	harness.Await(st, begun, "the request")
	if _, err := s.Abort(st.Ctx); err != nil {
		t.Fatal(err)
	}
	if out := ended(); out.Status() != copilot.TurnAborted {
		t.Errorf("the turn ended %v", out)
	}
	harness.Await(st, cancelled, "the end of the request")
}

// TestTelemetry reaches the subscribers of the sessions that have it.
func TestTelemetry(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{})
	ask := func(id string) func() *bridgev1.WatchTelemetryResponse {
		stream, err := st.Client.Runtimes().WatchTelemetry(st.Ctx, &bridgev1.WatchTelemetryRequest{SessionId: id})
		if err != nil {
			t.Fatal(err)
		}
		next := func() *bridgev1.WatchTelemetryResponse {
			frame, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			return frame
		}
		if first := next(); first.GetEvent() != nil || first.GetLost() != 0 {
			t.Errorf("it begins with %v", first)
		}
		return next
	}
	all, one := ask(""), ask("told")
	quiet := st.Create(copilot.SessionOptions{ID: "quiet"})
	st.Say(quiet, "nothing is told of this")
	told := st.Create(copilot.SessionOptions{ID: "told", RuntimeProfile: &bridgev1.RuntimeProfile{Telemetry: true}})
	st.Say(told, "hello")
	for name, next := range map[string]func() *bridgev1.WatchTelemetryResponse{"all": all, "one": one} {
		for started := false; !started; {
			frame := next()
			e := frame.GetEvent()
			if e.GetSessionId() != "told" && (name == "one" || e.GetSessionId() == "quiet") {
				t.Errorf("%s: told of %v", name, frame)
			}
			started = e.GetEvent().GetKind() == "session_start" && frame.GetRuntimeId() != ""
		}
	}
	_, err := st.Client.Runtimes().WatchTelemetry(st.Ctx, &bridgev1.WatchTelemetryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	bad, err := st.Client.Runtimes().WatchTelemetry(st.Ctx, &bridgev1.WatchTelemetryRequest{SessionId: "no/id"})
	if err == nil {
		_, err = bad.Recv()
	}
	harness.WantField(t, copilot.FromError(err), codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD,
		"session_id")
}
