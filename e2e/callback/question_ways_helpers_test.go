package callback

import (
	"cmp"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

func (a *asker) answered() {
	s := a.open(copilot.SessionOptions{})
	p := a.participant(s)
	got := a.begin(s)
	cb := a.check(a.asked(p))
	a.offered(cb, s, p.ID)
	if r := p.Answer(cb.GetCallbackId(), a.yes(cb)); r.Failed != nil {
		a.T.Fatalf("the answer was refused: %v", r.Failed)
	}
	a.outcome(p, cb, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED, p.ID)
	a.accepts(s, cb, got)
}

// accepts checks the effect of the answer that accepts. A CLI may ask more than once: each connection to an MCP server
// wants headers.
func (a *asker) accepts(s *copilot.Session, cb *bridgev1.Callback, got func() string) {
	a.T.Helper()
	if a.again {
		a.keepAnswering(s, a.yes(cb))
	}
	a.became(got, a.accepted)
}

func (a *asker) refused() {
	s := a.open(copilot.SessionOptions{})
	p := a.participant(s)
	got := a.begin(s)
	cb := a.asked(p)
	if r := p.Answer(cb.GetCallbackId(), a.with(a.decline)); r.Failed != nil {
		a.T.Fatalf("the answer was refused: %v", r.Failed)
	}
	if a.insists {
		a.keepAnswering(s, a.with(a.decline))
	}
	a.became(got, a.declined)
}

// unanswered waits for the bridge to lose patience.
func (a *asker) unanswered() {
	opts := copilot.SessionOptions{CallbackTimeout: cmp.Or(a.patience, 300*time.Millisecond)}
	if !a.bound {
		opts.SessionHandlers = a.handlers()
	}
	s := a.open(opts)
	if a.bound {
		a.participant(s)
	}
	frames := a.Callbacks(s.ID())
	got := a.begin(s)
	cb := frames.Requested(a.kind)
	if over := frames.Resolved(cb.GetCallbackId()); over.GetOutcome() != bridgev1.CallbackOutcome_CALLBACK_OUTCOME_TIMED_OUT {
		a.T.Errorf("it ended %v", over)
	}
	a.became(got, a.silent)
}

// two has one participant abstain and another answer; both learn of it.
func (a *asker) two() {
	s := a.open(copilot.SessionOptions{})
	if a.bound {
		a.twoApart(s)
		return
	}
	one, two := a.participant(s), a.participant(s)
	got := a.begin(s)
	cb := a.asked(one)
	one.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{Answer: &bridgev1.CallbackAnswer{
		CallbackId: cb.GetCallbackId(),
		Answer:     &bridgev1.Answer{Answer: &bridgev1.Answer_Abstain{Abstain: &bridgev1.Abstain{}}},
	}}})
	if same := a.asked(two); same.GetCallbackId() != cb.GetCallbackId() {
		a.T.Errorf("the other was asked %v", same)
	}
	a.offered(cb, s, one.ID, two.ID)
	if r := two.Answer(cb.GetCallbackId(), a.yes(cb)); r.Failed != nil {
		a.T.Fatalf("the answer was refused: %v", r.Failed)
	}
	a.outcome(one, cb, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED, two.ID)
	if r := one.Answer(cb.GetCallbackId(),
		a.yes(cb)); r.Failed.GetReason() != bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED {
		a.T.Errorf("the late answer came to %v", r)
	}
	a.accepts(s, cb, got)
}

// inTurn has two participants asked one after the other: the first has no opinion.
func (a *asker) inTurn() {
	s := a.open(copilot.SessionOptions{})
	one, two := a.participant(s), a.participant(s)
	got := a.begin(s)
	first := a.asked(one)
	a.offered(first, s, one.ID)
	if r := one.Answer(first.GetCallbackId(), a.with(&cliv1.HookOutput{})); r.Failed != nil {
		a.T.Fatalf("no opinion was refused: %v", r.Failed)
	}
	second := a.next(two, first)
	a.offered(second, s, two.ID)
	if r := two.Answer(second.GetCallbackId(), a.yes(second)); r.Failed != nil {
		a.T.Fatalf("the answer was refused: %v", r.Failed)
	}
	a.outcome(one, second, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED, two.ID)
	a.accepts(s, second, got)
}

// next waits for the callback after another.
func (a *asker) next(p *harness.Attached, before *bridgev1.Callback) (cb *bridgev1.Callback) {
	a.T.Helper()
	p.Frame("the next callback", func(f *bridgev1.SubscribeResponse) bool {
		cb = f.GetCallbackRequested().GetCallback()
		return cb.GetKind() == a.kind && cb.GetCallbackId() != before.GetCallbackId()
	})
	return cb
}

// twoApart has one participant asked, whose connection it is, and another answer first.
func (a *asker) twoApart(s *copilot.Session) {
	one, two := a.participant(s), a.Attach(harness.JoinOf(s.ID(), a.handlers()))
	got := a.begin(s)
	cb := a.asked(one)
	if who := cb.GetParticipantIds(); len(who) != 1 || who[0] != one.ID {
		a.T.Errorf("offered to %q, want %q", who, one.ID)
	}
	if r := two.Answer(cb.GetCallbackId(), a.yes(cb)); r.Failed != nil {
		a.T.Fatalf("the answer was refused: %v", r.Failed)
	}
	a.outcome(one, cb, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED, two.ID)
	if r := one.Answer(cb.GetCallbackId(),
		a.yes(cb)); r.Failed.GetReason() != bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED {
		a.T.Errorf("the late answer came to %v", r)
	}
	a.accepts(s, cb, got)
}

// gone has the one who would answer leave.
func (a *asker) gone() {
	s := a.open(copilot.SessionOptions{})
	frames := a.Callbacks(s.ID())
	p := a.participant(s)
	got := a.begin(s)
	cb := a.asked(p)
	p.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Leave{Leave: &bridgev1.AttachLeave{}}})
	if a.stays {
		if err := p.End(); err != nil {
			a.T.Fatalf("leaving: %v", err)
		}
		if err := s.Resolve(a.Ctx, cb.GetCallbackId(), a.yes(cb)); err != nil {
			a.T.Fatalf("the answer of one who came later: %v", err)
		}
		a.accepts(s, cb, got)
		return
	}
	if over := frames.Resolved(cb.GetCallbackId()); over.GetOutcome() != bridgev1.CallbackOutcome_CALLBACK_OUTCOME_UNHANDLED {
		a.T.Errorf("it ended %v", over)
	}
	if text := got(); a.broken == "" || !strings.Contains(text, a.broken) {
		a.became(func() string { return text }, a.silent)
	}
}

// wronged gives answers that do not fit, on the stream and by unary calls, after which a
// good one still counts.
func (a *asker) wronged() {
	s := a.open(copilot.SessionOptions{})
	p := a.participant(s)
	got := a.begin(s)
	cb := a.asked(p)
	a.listed(s, cb)
	for _, answer := range a.bad() {
		if r := p.Answer(cb.GetCallbackId(),
			answer); r.Failed.GetReason() != bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID {
			a.T.Errorf("%v came to %v", answer, r)
		}
		harness.WantReason(a.T, s.Resolve(a.Ctx, cb.GetCallbackId(), answer),
			bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID)
	}
	if err := s.Resolve(a.Ctx, cb.GetCallbackId(), a.yes(cb)); err != nil {
		a.T.Fatalf("the answer was refused: %v", err)
	}
	a.outcome(p, cb, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED, "")
	harness.WantReason(a.T, s.Resolve(a.Ctx, cb.GetCallbackId(), a.with(a.decline)),
		bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED)
	a.accepts(s, cb, got)
}

// bad are answers that do not fit.
func (a *asker) bad() []*bridgev1.Answer {
	a.T.Helper()
	another := a.with(&bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: "no tool"}})
	if a.kind == bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL {
		another = a.with(copilot.ApproveOnce())
	}
	bad := []*bridgev1.Answer{
		another,
		{Answer: &bridgev1.Answer_Raw{Raw: &bridgev1.RawAnswer{ResultJson: "{"}}},
		{},
	}
	if a.wrong != nil {
		bad = append(bad, a.with(a.wrong))
	}
	return bad
}

// listed checks that a callback is pending for those without a stream, with the same
// request.
func (a *asker) listed(s *copilot.Session, want *bridgev1.Callback) {
	a.T.Helper()
	list, err := a.Client.Callbacks().ListPending(a.Ctx, &bridgev1.ListPendingRequest{SessionId: s.ID()})
	if err != nil {
		a.T.Fatal(err)
	}
	for _, cb := range list.GetCallbacks() {
		if cb.GetCallbackId() == want.GetCallbackId() {
			if !proto.Equal(cb, want) {
				a.T.Errorf("listed as %v, want %v", cb, want)
			}
			return
		}
	}
	a.T.Errorf("%v is not listed among %v", want, list.GetCallbacks())
}
