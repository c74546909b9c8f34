package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// attachStream is a participant's stream.
type attachStream = grpc.BidiStreamingClient[bridgev1.AttachRequest, bridgev1.AttachResponse]

// participant takes part in a session, with tools and handlers.
type participant struct {
	track *track
	by    *caller
	tools []*cliv1.ToolDefinition
	grace time.Duration
	end   context.CancelFunc
	over  chan struct{}

	mu     sync.Mutex
	rng    *rand.Rand
	stream attachStream
	token  string
	going  bool // it is to leave

	sending sync.Mutex // a stream takes one frame at a time
	work    sync.WaitGroup
}

// attach begins a participation.
func (w *world) attach(s step) {
	rng := s.rng(w.plan.Seed)
	to := w.conversation(s.pick[0])
	p := &participant{
		track: newTrack(w, fmt.Sprintf("participant %d", len(w.audience.participants)), to.id,
			taste(rng.IntN(int(tastes)))),
		by: w.caller(s.pick[1]), rng: rng, grace: one(rng, 0, 300*time.Millisecond, 5*time.Second),
		over: make(chan struct{}),
	}
	if rng.IntN(2) == 0 {
		p.tools = []*cliv1.ToolDefinition{tool(participantTool)}
	}
	var ctx context.Context
	ctx, p.end = context.WithCancel(w.ctx)
	w.rec.logf("%s attaches to session %d, tools %d, grace %v", p.track.name, to.n, len(p.tools), p.grace)
	w.audience.participants = append(w.audience.participants, p)
	go func() {
		defer close(p.over)
		p.stay(ctx)
		p.work.Wait()
	}()
}

// leave ends a participation in one of the ways there are.
func (w *world) leave(s step) {
	if len(w.audience.participants) > 0 {
		p := w.audience.participants[int(s.pick[0])%len(w.audience.participants)]
		p.leave(int(s.pick[1] % 3))
	}
}

func (p *participant) leave(how int) {
	p.mu.Lock()
	stream, gone := p.stream, p.going
	p.going = true
	p.mu.Unlock()
	p.track.w.rec.logf("%s leaves (%d)", p.track.name, how)
	if stream == nil || gone {
		p.end()
		return
	}
	switch how {
	case 0:
		p.send(stream, &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Leave{Leave: &bridgev1.AttachLeave{}}})
	case 1:
		p.sending.Lock()
		defer p.sending.Unlock()
		_ = stream.CloseSend() // if it has ended, it has
	default:
		p.end()
	}
}

func (p *participant) send(stream attachStream, f *bridgev1.AttachRequest) {
	p.sending.Lock()
	defer p.sending.Unlock()
	_ = stream.Send(f) // receiving says why it failed
}

func (p *participant) leaving() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.going
}

// stay takes part until it leaves, over as many streams as it takes.
func (p *participant) stay(ctx context.Context) {
	for ctx.Err() == nil && !p.leaving() {
		err := p.take(ctx)
		switch reason := reasonOf(err); reason {
		case "INTERNAL", "INVALID_FIELD":
			p.track.w.rec.violated("%s: %v", p.track.name, err)
			return
		case "PARTICIPANT_NOT_FOUND": // its grace time is over
			p.mu.Lock()
			p.token = ""
			p.mu.Unlock()
		case "TOOL_NAME_CONFLICT":
			p.tools = nil
		}
		p.track.w.rec.logf("%s: its stream ended: %v", p.track.name, errOrOK(err))
		select {
		case <-ctx.Done():
		case <-time.After(15 * time.Millisecond):
		}
	}
}

// take takes the place, and part until the stream ends.
func (p *participant) take(ctx context.Context) error {
	p.mu.Lock()
	p.track.mu.Lock()
	p.track.closed = false
	p.track.mu.Unlock()
	start := &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: p.track.session}, Name: p.track.name,
		ParticipantToken: p.token, Tools: p.tools,
		Handlers: &bridgev1.Handlers{Permission: true, Kinds: []bridgev1.CallbackKind{
			bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT, bridgev1.CallbackKind_CALLBACK_KIND_ELICITATION,
		}},
		Grace: durationpb.New(p.grace), After: p.track.resume(), Filter: p.track.taste.filter(),
		Options: &bridgev1.StreamOptions{HeartbeatInterval: durationpb.New(heartbeat)},
	}
	p.mu.Unlock()
	stream, err := p.by.callbacks.Attach(ctx)
	if err != nil {
		return err
	}
	p.send(stream, &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: start}})
	first, err := stream.Recv()
	for err == nil && first.GetProgress() != nil {
		first, err = stream.Recv()
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.stream, p.token = stream, first.GetStarted().GetParticipantToken()
	p.mu.Unlock()
	for {
		f, err := stream.Recv()
		if err != nil {
			return err
		}
		if sr := f.GetStream(); sr != nil {
			p.track.frame(sr)
			for _, c := range sr.GetStarted().GetPendingCallbacks() {
				p.asked(ctx, stream, c)
			}
			if r := sr.GetCallbackRequested(); r != nil {
				p.asked(ctx, stream, r.GetCallback())
			}
		}
	}
}

// asked answers a callback, in one of the ways that callers have: at once, late, twice,
// wrongly, or not at all.
func (p *participant) asked(ctx context.Context, stream attachStream, c *bridgev1.Callback) {
	p.mu.Lock()
	times, late, answer := 1, time.Duration(0), answerTo(p.rng, c)
	switch p.rng.IntN(12) {
	case 0:
		times = 0
	case 1, 2:
		times = 2
	case 3, 4:
		late = time.Duration(p.rng.IntN(600)) * time.Millisecond
	}
	p.mu.Unlock()
	p.work.Go(func() {
		select {
		case <-time.After(late):
		case <-ctx.Done():
			return
		}
		for range times {
			p.send(stream, &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{
				Answer: &bridgev1.CallbackAnswer{CallbackId: c.GetCallbackId(), Answer: answer},
			}})
		}
	})
}

// answerTo draws an answer.
func answerTo(rng *rand.Rand, c *bridgev1.Callback) *bridgev1.Answer {
	switch rng.IntN(12) {
	case 0:
		return &bridgev1.Answer{Answer: &bridgev1.Answer_Error{Error: &bridgev1.AnswerError{Message: "no"}}}
	case 1:
		return &bridgev1.Answer{Answer: &bridgev1.Answer_Abstain{Abstain: &bridgev1.Abstain{}}}
	}
	return plainAnswer(rng.IntN(5) > 0, c)
}

// plainAnswer is yes, or no where the kind of callback has a no.
func plainAnswer(yes bool, c *bridgev1.Callback) *bridgev1.Answer {
	switch c.GetKind() {
	case bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL:
		text := &bridgev1.ToolAnswer_Text{Text: "because of " + c.GetCallbackId()}
		return &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{Outcome: text}}}
	case bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION:
		if !yes {
			return &bridgev1.Answer{Answer: &bridgev1.Answer_Reject{Reject: &bridgev1.Reject{Feedback: "no"}}}
		}
		return &bridgev1.Answer{Answer: &bridgev1.Answer_Approve{Approve: &bridgev1.Approve{}}}
	case bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT:
		me := &cliv1.CallbackUserInputServiceRequestResponse{Answer: "me", WasFreeform: true}
		return &bridgev1.Answer{Answer: &bridgev1.Answer_UserInput{UserInput: me}}
	case bridgev1.CallbackKind_CALLBACK_KIND_ELICITATION:
		return &bridgev1.Answer{Answer: &bridgev1.Answer_Elicitation{Elicitation: &cliv1.UIElicitationResponse{
			Action: cliv1.UIElicitationResponseAction_UI_ELICITATION_RESPONSE_ACTION_ACCEPT,
		}}}
	default:
		return &bridgev1.Answer{Answer: &bridgev1.Answer_Error{Error: &bridgev1.AnswerError{Message: "nothing to say"}}}
	}
}

// resolve answers a callback by a call, perhaps after or during another participant's answer.
func (w *world) resolve(s step) {
	c, to, rng := w.caller(s.pick[1]), w.conversation(s.pick[0]), s.rng(w.plan.Seed)
	w.calls.running.Go(func() {
		var pending []*bridgev1.Callback
		_ = w.calls.do("ListPending", func(ctx context.Context) error {
			r, err := c.callbacks.ListPending(ctx, &bridgev1.ListPendingRequest{SessionId: to.id})
			pending = r.GetCallbacks()
			return err
		})
		for i, p := range pending {
			request := &bridgev1.ResolveRequest{
				SessionId: to.id, CallbackId: p.GetCallbackId(), Answer: plainAnswer(rng.IntN(4) > 0, p),
				RequestId: fmt.Sprintf("resolve-%d-%d-%d", s.pick[0], s.pick[1], i),
			}
			a := w.calls.asking("Resolve", func(ctx context.Context, by *caller) (string, error) {
				_, err := by.callbacks.Resolve(ctx, request)
				return "", err
			})
			for range 1 + rng.IntN(2) {
				w.calls.running.Go(func() { _ = w.calls.ask(c, a) })
			}
		}
	})
}
