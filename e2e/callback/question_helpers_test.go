package callback

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// question is a kind of callback: how the CLI is brought to ask, and what becomes of each
// answer.
type question struct {
	kind bridgev1.CallbackKind
	// config is what the session needs for it.
	config func(*harness.Scripted, *cliv1.SessionConfig)
	rules  []offlinemodel.Rule
	// open creates the session, where that takes more than a call.
	open func(*asker, copilot.SessionOptions) *copilot.Session
	// ask has the CLI ask; default: a turn "ask". It gives what came of the answer.
	ask func(*harness.Scripted, *copilot.Session) (became func() string)
	// request is a part of the request's text, as protobuf.
	request string
	// accept and decline are answers; decline, where it is nil, is an error. wrong is one
	// that is not fit, beside one of another kind. answer makes accept from the request,
	// where it must.
	accept, decline, wrong proto.Message
	answer                 func(*bridgev1.Callback) proto.Message
	// accepted, declined and silent say what comes of the answers, and of none: a part
	// of it. Where declined or silent is empty, it is what does not have accepted.
	accepted, declined, silent string
	// broken is another possible result when the answering participant leaves: the CLI may see the end of a
	// participant's connection before the bridge's answer.
	broken string
	// also are other kinds that the answering participants handle.
	also []bridgev1.CallbackKind
	// host is what the hosts are like, where each way has its own.
	host harness.HostConfig
	// since is the first version of the CLI that asks.
	since string
	// hooks are the hook types of interest.
	hooks []string
	// joins is what a participant declares beside its handlers. With bound the CLI asks it
	// alone.
	joins func(*bridgev1.AttachStart)
	bound bool
	// insists says that the CLI asks again when it is refused.
	insists bool
	// again says that the CLI may ask more than once, however it is answered.
	again bool
	// stays reports that the question outlives its participants: any caller may still answer it.
	stays bool
	// patience is how long the bridge waits for the answer that never comes; default: 300 ms.
	patience time.Duration
	// alone reports that participants get the question one after the other.
	alone bool
}

// test puts the question in each of the ways that there are, on a host; where that is nil, each on a separate one, made
// as the question says.
func (q question) test(t *testing.T, h *harness.Host) {
	for name, way := range map[string]func(*asker){
		"answered": (*asker).answered, "declined": (*asker).refused, "unanswered": (*asker).unanswered,
		"two participants": (*asker).two, "participant gone": (*asker).gone, "wrong answer": (*asker).wronged,
	} {
		if q.alone && name == "two participants" {
			way = (*asker).inTurn
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r *harness.Fixture
			if h == nil {
				r = harness.NewOwnFixture(t, harness.Echo, q.host)
			} else {
				r = harness.NewFixtureOn(t, h, harness.Echo)
			}
			if q.since != "" && r.Before(q.since) {
				t.Skipf("CLI %s does not ask", r.Host.CLI)
			}
			a := &asker{Scripted: (&harness.Scripted{Fixture: r}).Play(q.rules), question: q}
			way(a)
		})
	}
}

// asker is a question that is put.
type asker struct {
	*harness.Scripted
	question
}

// open makes the session that asks. Its creator handles nothing, unless it says so.
func (a *asker) open(opts copilot.SessionOptions) *copilot.Session {
	a.T.Helper()
	opts.Config = a.Scripted.Config()
	if a.kind != bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION {
		opts.OnPermission = copilot.ApproveAll
	}
	if a.question.config != nil {
		a.question.config(a.Scripted, opts.Config)
	}
	if a.question.open != nil {
		return a.question.open(a, opts)
	}
	return a.Create(opts)
}

// handlers are the handlers of a participant that answers the question.
func (a *asker) handlers() *bridgev1.Handlers {
	return &bridgev1.Handlers{Kinds: append([]bridgev1.CallbackKind{a.kind}, a.also...), HookTypes: a.hooks}
}

func (a *asker) participant(s *copilot.Session) *harness.Attached {
	a.T.Helper()
	start := harness.JoinOf(s.ID(), a.handlers())
	if a.joins != nil {
		a.joins(start)
	}
	return a.Attach(start)
}

// begin has the CLI ask.
func (a *asker) begin(s *copilot.Session) (became func() string) {
	if a.ask != nil {
		return a.ask(a.Scripted, s)
	}
	wait := a.GoTurn(s, "ask")
	return func() string { return wait().Text() }
}

// asked waits until the participant has the question.
func (a *asker) asked(p *harness.Attached) (cb *bridgev1.Callback) {
	a.T.Helper()
	p.Frame("a callback", func(f *bridgev1.SubscribeResponse) bool {
		for _, c := range append(f.GetStarted().GetPendingCallbacks(), f.GetCallbackRequested().GetCallback()) {
			if c.GetKind() == a.kind {
				cb = c
			}
		}
		return cb != nil
	})
	return cb
}

// keepAnswering answers all other questions until the test is over.
func (a *asker) keepAnswering(s *copilot.Session, answer *bridgev1.Answer) {
	a.T.Helper()
	h := harness.JoinOf(s.ID(), a.handlers())
	stream, err := a.Client.Callbacks().Attach(a.Ctx)
	if err == nil {
		err = stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: h}})
	}
	if err != nil {
		a.T.Fatal(err)
	}
	go func() {
		for {
			frame, err := stream.Recv()
			if err != nil {
				return // the test is over
			}
			asked := frame.GetStream().GetStarted().GetPendingCallbacks()
			if r := frame.GetStream().GetCallbackRequested(); r != nil {
				asked = append(asked, r.GetCallback())
			}
			for _, cb := range asked {
				_ = stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{
					Answer: &bridgev1.CallbackAnswer{CallbackId: cb.GetCallbackId(), Answer: answer},
				}})
			}
		}
	}()
}

func (a *asker) with(m proto.Message) *bridgev1.Answer {
	a.T.Helper()
	switch m := m.(type) {
	case nil:
		return a.with(failing)
	case *bridgev1.AnswerError:
		return &bridgev1.Answer{Answer: &bridgev1.Answer_Error{Error: m}}
	case *bridgev1.ToolAnswer:
		return &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: m}}
	case *copilot.Decision:
		return copilot.AnswerPermission(m)
	}
	answer, err := copilot.AnswerWith(m)
	if err != nil {
		a.T.Fatal(err)
	}
	return answer
}

// yes is the answer that accepts.
func (a *asker) yes(cb *bridgev1.Callback) *bridgev1.Answer {
	a.T.Helper()
	if a.question.answer != nil {
		return a.with(a.question.answer(cb))
	}
	return a.with(a.accept)
}

// check looks at a callback.
func (a *asker) check(cb *bridgev1.Callback) *bridgev1.Callback {
	a.T.Helper()
	if cb.GetKind() != a.kind || cb.GetRaw() != nil || cb.GetDeadline() == nil ||
		!strings.Contains(unspaced(cb.String()), unspaced(a.request)) {
		a.T.Errorf("asked %v, want a %v with %s", cb, a.kind, a.request)
	}
	return cb
}

// offered checks to whom a callback was offered: these, and the session's creator where it is about a tool of the
// session, which any participant may carry out.
func (a *asker) offered(cb *bridgev1.Callback, creator *copilot.Session, want ...string) {
	a.T.Helper()
	if a.kind == bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL {
		want = append([]string{creator.ParticipantID()}, want...)
	}
	if got := cb.GetParticipantIds(); !slices.Equal(got, want) {
		a.T.Errorf("offered to %q, want %q", got, want)
	}
}

// unspaced evens out the spaces that the text of messages has at random.
func unspaced(text string) string { return strings.Join(strings.Fields(text), " ") }

func (a *asker) became(got func() string, want string) {
	a.T.Helper()
	text := got()
	if !strings.Contains(text, want) ||
		want == "" && a.accepted != "" && strings.Contains(text, a.accepted) {
		a.T.Errorf("what came of it is %q, want %q", text, want)
	}
}

func (a *asker) outcome(p *harness.Attached, cb *bridgev1.Callback, want bridgev1.CallbackOutcome, by string) {
	a.T.Helper()
	if over := p.Resolved(cb.GetCallbackId()); over.GetOutcome() != want || over.GetParticipantId() != by ||
		over.GetKind() != a.kind {
		a.T.Errorf("it ended %v, want %v by %q", over, want, by)
	}
}

// invoke calls a method of the CLI by RawService; what it returns waits for the result.
func invoke(st *harness.Scripted, s *copilot.Session, method string, params any) (result func() string) {
	st.T.Helper()
	text, err := json.Marshal(params)
	if err != nil {
		st.T.Fatal(err)
	}
	done := make(chan string, 1)
	go func() {
		resp, err := st.Client.Raw().Invoke(st.Ctx,
			&bridgev1.InvokeRequest{Method: method, SessionId: s.ID(), ParamsJson: string(text)})
		if err != nil {
			done <- err.Error()
			return
		}
		done <- resp.GetResultJson()
	}()
	return func() string {
		st.T.Helper()
		return harness.Await(st, done, "the result of "+method)
	}
}
