package prompt

import (
	"cmp"
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/progress"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"

	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Run sends a prompt and streams until its turn has ended.
func (svc *Service) Run(ctx context.Context, r *bridgev1.RunRequest, sink frame.Sink) error {
	if err := svc.cfg.Shutdown.Accepting(); err != nil {
		return err
	}
	o, err := stream.ParseOptions(r.GetOptions())
	if err != nil {
		return err
	}
	// The prompt is checked before a session is created for it.
	m, err := svc.cfg.Parser.Prompt(caller.From(ctx), r.GetPrompt())
	if err != nil {
		return err
	}
	if _, err := stream.NewFilter(r.GetFilter(), "filter"); err != nil {
		return err
	}
	starting, stop := progress.Watch(ctx, func(stage progress.Stage) {
		_ = sink(frame.Frame{Message: &bridgev1.RunResponse{ // if it fails, the next frame fails too
			Frame: &bridgev1.RunResponse_Progress{Progress: stage.Proto()},
		}})
	})
	turn, err := svc.runTurn(starting, r, m)
	stop()
	if err != nil {
		return err
	}
	// A Run with a request id may be one of several for the turn; one without is the only one,
	// and has entered already.
	if r.GetRequestId() != "" && !turn.oneOff.enter() {
		return session.NotFound(turn.s.ID())
	}
	defer turn.oneOff.leave()
	ctx, done := svc.cfg.Sessions.During(ctx, turn.s)
	return done(svc.streamTurn(ctx, turn, r, o, sink))
}

// streamTurn streams a turn until it has ended.
func (svc *Service) streamTurn(
	ctx context.Context, turn *startedTurn, r *bridgev1.RunRequest, o stream.Options, sink frame.Sink,
) error {
	st := svc.cfg.Streams.Open(ctx, o)
	defer st.Close()
	st.To(sink)
	following := stream.Following{Start: stream.Start{After: turn.begin}, Filter: r.GetFilter(), Callbacks: true}
	if err := st.Follow(turn.s, following); err != nil {
		return err
	}
	started := &bridgev1.RunResponse_Started{Started: &bridgev1.RunStarted{
		SessionId: tenancy.NameOf(ctx, turn.s), MessageId: turn.sent.MessageID, Position: session.Proto(turn.sent.At),
	}}
	if err := sink(frame.Frame{Message: &bridgev1.RunResponse{Frame: started}}); err != nil {
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
		end := &bridgev1.RunResponse_Outcome{Outcome: outcome().Proto()}
		err := sink(frame.Frame{Message: &bridgev1.RunResponse{Frame: end}})
		if err == nil && turn.ended != nil {
			select { // so that the caller's next call finds the session disconnected
			case <-turn.ended:
			case <-ctx.Done():
			}
		}
		return err
	default:
		return fault.New(fault.Draining, "the server stops before the turn has ended").
			With("message_id", turn.sent.MessageID)
	}
}

// startedTurn is the turn of a Run.
type startedTurn struct {
	s     *session.Session
	sent  session.Sent
	begin *bridgev1.Position // its events come after; nil for all
	ended chan struct{}      // closes when the session is disconnected too; nil if it stays
	// oneOff deletes the session after the turn; nil if it stays.
	oneOff *oneOff
}

// runTurn begins the turn, or returns the turn of an earlier Run with the same request id.
func (svc *Service) runTurn(ctx context.Context, r *bridgev1.RunRequest, m session.Message) (*startedTurn, error) {
	key := backend.Key{Tenant: caller.From(ctx).Tenant, Operation: backend.OpRun, ID: r.GetRequestId()}
	id := cmp.Or(r.GetSessionId(), r.GetCreate().GetSessionId(), key.SessionID(), sessions.NewID())
	m.Request = RequestKey(ctx, backend.OpRun, r.GetRequestId())
	var begun *startedTurn
	run := func(ctx context.Context) (*bridgev1.RunStarted, error) {
		s, err := svc.runSession(ctx, r, id)
		if err != nil {
			return nil, err
		}
		t := svc.newTurn(ctx, s, r)
		if r.GetCreate() == nil {
			t.begin = session.Proto(s.Journal().Last())
		}
		sent, err := async.Wait(ctx, func(done func(session.Sent, error)) { svc.StartMessage(ctx, s, m, done) })
		if err != nil {
			svc.disconnectAfter(t)
			if r.GetRequestId() == "" {
				t.oneOff.leave()
			}
			return nil, err
		}
		t.sent = sent
		t.sent.Waiter = s.Follow(sent.Waiter, sent.MessageID)
		svc.disconnectAfter(t)
		svc.runs.put(t)
		begun = t
		return &bridgev1.RunStarted{SessionId: tenancy.NameOf(ctx, s), MessageId: begun.sent.MessageID}, nil
	}
	started, err := idempotency.Run(ctx, svc.cfg.Operations, idempotency.Operation[*bridgev1.RunStarted]{
		Scope: backend.OpRun, ID: r.GetRequestId(), Request: r, Detach: true, Do: idempotency.Blocking(run),
		Settle: svc.settleRun(r, Interrupted{SessionID: id, Key: m.Request, Texts: textsOf(r.GetPrompt())}, run),
	})
	if err != nil {
		return nil, err // a detached run may still be setting begun
	}
	if begun != nil {
		return begun, nil
	}
	if again := svc.runs.get(ctx, started.GetSessionId(), started.GetMessageId()); again != nil {
		return again, nil
	}
	return svc.runAgain(ctx, r, started)
}

// newTurn returns a turn of a Run in a session. A session that the Run has created is disconnected after the turn, unless
// its lifetime is KEEP, and deleted, unless the caller chose its id.
func (svc *Service) newTurn(ctx context.Context, s *session.Session, r *bridgev1.RunRequest) *startedTurn {
	t, create := &startedTurn{s: s}, r.GetCreate()
	if create == nil || create.GetLifetime() == bridgev1.Lifetime_LIFETIME_KEEP {
		return t
	}
	t.ended = make(chan struct{})
	switch {
	case create.GetSessionId() != "":
	case r.GetRequestId() == "": // its Run has entered
		t.oneOff = &oneOff{svc: svc, s: s, as: context.WithoutCancel(ctx), users: 2}
	default:
		t.oneOff = &oneOff{svc: svc, s: s, as: context.WithoutCancel(ctx), users: 1, grace: oneOffGrace}
	}
	return t
}

// runSession returns the session of a Run.
func (svc *Service) runSession(ctx context.Context, r *bridgev1.RunRequest, id string) (*session.Session, error) {
	if r.GetCreate() == nil {
		return svc.cfg.Sessions.Open(ctx, r.GetSessionId())
	}
	s, _, err := svc.cfg.Opener.Create(ctx, r.GetCreate(), id, "create.", nil)
	return s, err
}

// disconnectAfter disconnects the session of a turn, if it is not to stay, when the turn has ended, at once if none was
// begun. A caller whose connection broke finds the session until then.
func (svc *Service) disconnectAfter(t *startedTurn) {
	if t.ended == nil {
		return
	}
	s, w := t.s, t.sent.Waiter
	svc.cfg.Shutdown.Go(func(ctx context.Context) {
		defer close(t.ended)
		if w != nil && !svc.awaitRun(ctx, s, w) {
			return
		}
		ctx, cancel := context.WithTimeout(audit.ByBridge(ctx, s.Tenant()), closeTimeout)
		defer cancel()
		if _, err := s.Loader().Disconnect(ctx, false); err != nil {
			svc.cfg.Log.Warn("disconnecting the session of a run failed", "session_id", s.ID(), "error", err)
			return
		}
		t.oneOff.leave()
	})
}

// awaitRun waits for the turn of a Run, and for those of prompts that others have queued behind it. It returns false if ctx
// ends before.
func (svc *Service) awaitRun(ctx context.Context, s *session.Session, w *session.Waiter) bool {
	over, outcome := w.Done()
	select {
	case <-over:
	case <-ctx.Done():
		return false
	}
	return outcome().Status != bridgev1.TurnStatus_TURN_STATUS_COMPLETED || s.Turns().AwaitRest(ctx) == nil
}

// closeTimeout bounds ending a session that was created for one turn.
const closeTimeout = 30 * time.Second
