package bridge

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/operation"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/sending"
	"github.com/copilot-grpc/copilot-grpc/bridge/settle"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Run says something and streams until the turn has ended.
func (b *Bridge) Run(ctx context.Context, r *bridgev1.RunRequest, sink frame.Sink) error {
	if err := b.shutdown.Accepting(); err != nil {
		return err
	}
	o, err := stream.ParseOptions(r.GetOptions())
	if err != nil {
		return err
	}
	// What is wrong with the prompt is found before a session is made for it.
	m, err := b.prompt(ctx, r.GetPrompt(), "prompt")
	if err != nil {
		return err
	}
	if _, err := stream.NewFilter(r.GetFilter(), "filter"); err != nil {
		return err
	}
	turn, err := b.runTurn(ctx, r, m)
	if err != nil {
		return err
	}
	// A Run with a request id may be one of several for the turn; one without is the only one,
	// and has entered already.
	if r.GetRequestId() != "" && !turn.oneOff.enter() {
		return session.NotFound(turn.s.ID())
	}
	defer turn.oneOff.leave()
	ctx, done := b.visiting(ctx, turn.s)
	return done(b.streamTurn(ctx, turn, r, o, sink))
}

// streamTurn streams a turn until it has ended.
func (b *Bridge) streamTurn(ctx context.Context, turn *startedTurn, r *bridgev1.RunRequest, o stream.Options, sink frame.Sink) error {
	st := b.Events.Open(ctx, o)
	defer st.Close()
	st.To(sink)
	following := stream.Following{Start: stream.Start{After: turn.begin}, Filter: r.GetFilter(), Callbacks: true}
	if err := st.Follow(turn.s, following); err != nil {
		return err
	}
	started := &bridgev1.RunStarted{SessionId: tenancy.NameOf(ctx, turn.s), MessageId: turn.sent.MessageID, Position: session.Proto(turn.sent.At)}
	if err := sink(frame.Frame{Message: &bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Started{Started: started}}}); err != nil {
		return err
	}
	over, outcome := turn.sent.Waiter.Done()
	st.Done, st.End = over, func() journal.Position { return outcome().End }
	if err := st.Run(ctx); err != nil {
		return err
	}
	select {
	case <-over:
		if err := outcome().Err; err != nil {
			return err
		}
		err := sink(frame.Frame{Message: &bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Outcome{Outcome: outcome().Proto()}}})
		if err == nil && turn.ended != nil {
			select { // so that what the caller does next finds the session's use over
			case <-turn.ended:
			case <-ctx.Done():
			}
		}
		return err
	default:
		return fault.New(fault.Draining, "the server stops before the turn has ended").With("message_id", turn.sent.MessageID)
	}
}

// startedTurn is the turn of a Run.
type startedTurn struct {
	s     *session.Session
	sent  sending.Sent
	begin *bridgev1.Position // its events come after; nil for all
	ended <-chan struct{}    // closes when the session's use is over too; nil if it stays
	// oneOff deletes the session after the turn; nil if it stays.
	oneOff *oneOff
}

// runTurn begins the turn, unless a Run with the same request id did before: then it is
// that one's.
func (b *Bridge) runTurn(ctx context.Context, r *bridgev1.RunRequest, m sending.Message) (*startedTurn, error) {
	id := cmp.Or(r.GetSessionId(), r.GetCreate().GetSessionId(), registry.NewID())
	m.Request = settle.Key(ctx, idempotency.Run, r.GetRequestId())
	var begun *startedTurn
	run := func(ctx context.Context) (*bridgev1.RunStarted, error) {
		s, end, err := b.runSession(ctx, r, id)
		if err != nil {
			return nil, err
		}
		t := &startedTurn{s: s, oneOff: b.oneOffOf(ctx, s, r)}
		if r.GetCreate() == nil {
			t.begin = session.Proto(s.Journal().Last())
		}
		if t.sent, err = b.say(ctx, s, m); err != nil {
			end(nil, t.oneOff)
			if r.GetRequestId() == "" {
				t.oneOff.leave()
			}
			return nil, err
		}
		over, _ := t.sent.Waiter.Done()
		t.ended = end(over, t.oneOff)
		b.runs.put(t)
		begun = t
		return &bridgev1.RunStarted{SessionId: tenancy.NameOf(ctx, s), MessageId: begun.sent.MessageID}, nil
	}
	started, err := operation.Run(ctx, b.operations, operation.Operation[*bridgev1.RunStarted]{
		Scope: idempotency.Run, ID: r.GetRequestId(), Request: r, Detach: true, Do: run,
		Settle: b.settleRun(r, settle.Prompt{SessionID: id, Key: m.Request, Texts: textsOf(r.GetPrompt())}, run),
	})
	if err != nil {
		return nil, err // a detached run may still be setting begun
	}
	if begun != nil {
		return begun, nil
	}
	if again := b.runs.get(ctx, started.GetSessionId(), started.GetMessageId()); again != nil {
		return again, nil
	}
	return b.runAgain(ctx, r, started)
}

// maxRuns bounds the turns that a repeated Run can still find; each keeps its session's
// journal in memory.
const maxRuns = 256

// runs remembers the turns of Run by message.
type runs struct {
	mu    sync.Mutex
	turns map[string]*startedTurn
	order []string
}

// put remembers a turn, and returns the one that is remembered: an earlier one of the same
// message stays.
func (rs *runs) put(t *startedTurn) *startedTurn {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.turns == nil {
		rs.turns = map[string]*startedTurn{}
	}
	key := t.s.Key() + "/" + t.sent.MessageID
	if earlier := rs.turns[key]; earlier != nil {
		return earlier
	}
	rs.turns[key] = t
	if rs.order = append(rs.order, key); len(rs.order) > maxRuns {
		delete(rs.turns, rs.order[0])
		rs.order = rs.order[1:]
	}
	return t
}

// forget drops the turns of a session that was deleted.
func (rs *runs) forget(s *session.Session) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for key, t := range rs.turns {
		if t.s == s {
			delete(rs.turns, key)
			rs.order = slices.DeleteFunc(rs.order, func(o string) bool { return o == key })
		}
	}
}

func (rs *runs) get(ctx context.Context, sessionID, messageID string) *startedTurn {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.turns[tenancy.KeyOf(caller.From(ctx).Tenant, sessionID)+"/"+messageID]
}

// runEnd ends the use of a Run's session when over closes, at once if that is nil. The channel
// that it returns closes then; it is nil if the session stays.
type runEnd func(over <-chan struct{}, once *oneOff) <-chan struct{}

// oneOffOf returns what deletes the session of a Run: nil if the caller chose its id, or has it
// live on.
func (b *Bridge) oneOffOf(ctx context.Context, s *session.Session, r *bridgev1.RunRequest) *oneOff {
	create := r.GetCreate()
	if create == nil || create.GetSessionId() != "" || create.GetLifetime() == bridgev1.Lifetime_LIFETIME_KEEP {
		return nil
	}
	if r.GetRequestId() == "" {
		return &oneOff{b: b, s: s, as: context.WithoutCancel(ctx), readers: 1}
	}
	return &oneOff{b: b, s: s, as: context.WithoutCancel(ctx), grace: oneOffGrace}
}

// runSession returns the session of a Run, and what ends it: after the turn, whoever is
// still listening, so that a caller whose connection broke finds it.
func (b *Bridge) runSession(ctx context.Context, r *bridgev1.RunRequest, id string) (s *session.Session, end runEnd, err error) {
	keep := func(<-chan struct{}, *oneOff) <-chan struct{} { return nil }
	if r.GetCreate() == nil {
		s, err := b.open(ctx, r.GetSessionId())
		return s, keep, err
	}
	s, _, err = b.createAs(ctx, r.GetCreate(), id, "create.", nil)
	if err != nil {
		return nil, nil, err
	}
	if r.GetCreate().GetLifetime() == bridgev1.Lifetime_LIFETIME_KEEP {
		return s, keep, nil
	}
	return s, b.disconnectAfter(s), nil
}

// disconnectAfter returns what disconnects the session of a Run, and deletes one that was made
// for a single turn.
func (b *Bridge) disconnectAfter(s *session.Session) runEnd {
	return func(over <-chan struct{}, once *oneOff) <-chan struct{} {
		ended := make(chan struct{})
		b.Go(func(ctx context.Context) {
			defer close(ended)
			if over != nil {
				select {
				case <-over:
				case <-ctx.Done():
					return
				}
			}
			ctx, cancel := context.WithTimeout(ctx, closeTimeout)
			defer cancel()
			if _, err := s.Disconnect(ctx, false); err != nil {
				b.log.Warn("session of a run not disconnected", "session_id", s.ID(), "error", err)
				return
			}
			if once != nil {
				once.end()
			}
		})
		return ended
	}
}
