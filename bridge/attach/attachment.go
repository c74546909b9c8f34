package attach

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	defaultGrace = 30 * time.Second
	maxGrace     = time.Hour
	maxName      = 128
	// commandQueue bounds a participant's commands that wait; one more fails with
	// LIMIT_EXCEEDED.
	commandQueue = 64
	// modelQueue bounds a participant's parts of model responses that wait; past it its
	// frames do.
	modelQueue = 64
	// leavePatience is how long the last participant, which has said goodbye, may take to
	// answer what the CLI asks at a session's end.
	leavePatience = 10 * time.Second
	// closeTimeout bounds the end of a session whose last participant leaves.
	closeTimeout = 30 * time.Second
	// maxAnswers bounds a participant's answers under way; past it its frames wait.
	maxAnswers = 32
)

// errLeft is the cause with which a participant's stream ends by its own wish.
var errLeft = errors.New("the participant left")

// Attachment is a participant's stream.
type Attachment struct {
	svc *Service
	s   *session.Session
	p   *roster.Participant
	// name is what the participant calls the session.
	name string

	started *bridgev1.AttachStarted
	start   *bridgev1.AttachStart
	// opening, if set, delivers the result of opening the session, when the participant receives callbacks
	// before that.
	opening chan opened
	options stream.Options
	begin   stream.Start
	stream  *stream.Stream
	// releaseShared releases what AcquireShared returned.
	releaseShared func()

	// life ends when the participation does, with the cause.
	life     context.Context
	end      context.CancelCauseFunc
	commands commands
	out      *outlet
	answers  chan struct{} // a token each
	parts    chan *bridgev1.ModelResponse

	// refused is why the session could not be opened; only Stream uses it, after join.
	refused error

	mu   sync.Mutex
	over bool // the stream has ended: nothing more is begun
	// disconnecting says that the participation ends when the session's use has, keeping
	// that the participant has its place until then.
	disconnecting, keeping bool
	work                   sync.WaitGroup
}

// Attach makes the caller a participant.
func (svc *Service) Attach(ctx context.Context, start *bridgev1.AttachStart) (*Attachment, error) {
	a := &Attachment{
		svc: svc, start: start,
		out: newOutlet(commandQueue + maxAnswers), answers: make(chan struct{}, maxAnswers),
		parts: make(chan *bridgev1.ModelResponse, modelQueue),
	}
	if err := svc.cfg.Shutdown.Accepting(); err != nil {
		return nil, err
	}
	join, err := a.parseStart()
	if err != nil {
		return nil, err
	}
	release, err := svc.cfg.Admission.Participant(caller.From(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	defer release()
	a.life, a.end = context.WithCancelCause(context.WithoutCancel(ctx))
	join.Replace, join.Identity = a.end, caller.From(ctx).Identity
	s, joined, err := a.openAsync(ctx, join)
	if err != nil {
		a.end(err)
		return nil, a.refusal(err)
	}
	if err := a.follow(ctx, s, joined); err != nil {
		a.Leave()
		return nil, err
	}
	if a.opening == nil {
		a.started = a.startedAs(ctx, joined)
	}
	return a, nil
}

// follow makes the stream of the participant's frames.
func (a *Attachment) follow(ctx context.Context, s *session.Session, joined session.Joined) error {
	a.s, a.p, a.name = s, joined.Participant, tenancy.NameOf(ctx, s)
	a.releaseShared = a.svc.cfg.Sessions.AcquireShared(ctx, s, func() {
		a.s.Participants().Leave(a.p)
		a.end(session.NotFound(a.name))
	})
	a.stream = a.svc.cfg.Streams.Open(ctx, a.options)
	a.stream.Extra = a.out.queue
	a.stream.Stay = s.Turns().Running // the turn may need the participant
	return a.stream.Follow(s, stream.Following{
		Start: a.begin, Filter: a.start.GetFilter(), At: "start.",
		Callbacks: true, Participant: a.p.ID, Exact: a.start.GetExact(),
	})
}

func (a *Attachment) startedAs(ctx context.Context, joined session.Joined) *bridgev1.AttachStarted {
	started := &bridgev1.AttachStarted{
		ParticipantId: a.p.ID, ParticipantToken: a.p.Token, Session: a.svc.cfg.Sessions.Snapshot(a.s, caller.From(ctx).Tenant), Resumed: joined.Returned,
	}
	a.answered(started)
	return started
}

// Stream sends the participant's frames until the participation ends.
func (a *Attachment) Stream(ctx context.Context, sink frame.Sink) error {
	defer a.stream.Close()
	defer a.releaseShared()
	a.stream.To(sink)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(a.life, func() { cancel(context.Cause(a.life)) })
	defer stop()
	a.spawn(func() { a.runParts(ctx) })
	err := sink(frame.Frame{Message: a.first(ctx)})
	if err == nil {
		a.stream.To(a.out.open(sink))
		err = a.stream.Run(ctx)
		a.out.close()
	}
	cancel(errLeft)
	a.join()
	if a.refused != nil {
		return a.refused
	}
	switch context.Cause(a.life) {
	case errLeft:
		if err := a.stream.Rest(); err != nil {
			return err
		}
		return a.stream.CloseAll(bridgev1.CloseReason_CLOSE_REASON_LEFT)
	case roster.ErrReplaced:
		_ = a.stream.CloseAll(bridgev1.CloseReason_CLOSE_REASON_REPLACED) // the status says it too
		return roster.ErrReplaced
	}
	return err
}

// spawn runs f on a goroutine that the stream joins. After the end of the stream it does nothing.
func (a *Attachment) spawn(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.work.Go(f)
	}
}

// join waits for what was spawned.
func (a *Attachment) join() {
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
	a.work.Wait()
}

// Handle processes a frame of the participant. It reports failed commands on the stream; an error ends the stream. The
// frame is neither empty nor a second start: package rpc refuses both.
func (a *Attachment) Handle(ctx context.Context, r *bridgev1.AttachRequest) error {
	switch f := r.GetFrame().(type) {
	case *bridgev1.AttachRequest_Answer:
		select {
		case a.answers <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		case <-a.life.Done():
			return nil
		}
		a.answer(ctx, f.Answer)
	case *bridgev1.AttachRequest_Command:
		switch now, ok := a.commands.add(f.Command); {
		case now:
			a.startCommand(ctx, f.Command)
		case !ok:
			err := fault.New(fault.LimitExceeded, "%d commands are waiting", commandQueue).With("limit", "commands")
			a.svc.cfg.Observer.Refused(err)
			a.out.enqueue(ctx, a.life, commandFailed(f.Command, err)) // the receiver must not wait for the sender
		}
	case *bridgev1.AttachRequest_ModelResponse:
		select {
		case a.parts <- f.ModelResponse:
		case <-ctx.Done():
			return ctx.Err()
		case <-a.life.Done():
		}
	case *bridgev1.AttachRequest_Heartbeat:
	case *bridgev1.AttachRequest_Leave:
		a.leave(f.Leave.GetDisconnect())
	}
	return nil
}

// leave carries out the participant's goodbye. Where that ends the use of the session, its
// stream ends when it has, so that what the caller does next finds it so.
func (a *Attachment) leave(disconnect bool) {
	last, ends := a.s.Participants().Alone(a.p)
	if a.name != a.s.ID() { // a guest's: it leaves, and the session is its owner's to end
		disconnect = false
	}
	if !disconnect && !ends {
		a.Leave()
		return
	}
	// A session with other participants stays. The last participant stays until the CLI has closed the session,
	// since the CLI may still write files or call hooks.
	a.mu.Lock()
	a.disconnecting, a.keeping = true, last
	a.mu.Unlock()
	if !last {
		a.Leave()
	}
	a.svc.cfg.Shutdown.Go(func(ctx context.Context) {
		defer a.end(errLeft)
		ctx, cancel := context.WithTimeout(ctx, closeTimeout)
		defer cancel()
		patience := time.AfterFunc(leavePatience, func() { a.s.Participants().Leave(a.p) })
		defer patience.Stop()
		if _, err := a.s.Loader().DisconnectWith(ctx, a.p); err != nil {
			a.svc.cfg.Log.Warn("disconnecting a session failed", "session_id", a.s.ID(), "error", err)
		}
		a.s.Participants().Leave(a.p)
	})
}

// Leave ends a participation by its token.
func (svc *Service) Leave(ctx context.Context, r *bridgev1.LeaveRequest) (*bridgev1.LeaveResponse, error) {
	if r.GetParticipantToken() == "" {
		return nil, fault.New(fault.InvalidField, "participant_token is required").WithField("participant_token")
	}
	s, err := svc.cfg.Sessions.Find(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	return &bridgev1.LeaveResponse{Left: s.Participants().LeaveBy(r.GetParticipantToken(), errLeft)}, nil
}

// Leave ends the participation at once: the caller says nothing more.
func (a *Attachment) Leave() {
	a.mu.Lock()
	disconnecting := a.disconnecting
	a.mu.Unlock()
	a.s.Participants().Leave(a.p)
	if !disconnecting {
		a.end(errLeft)
	}
}

// Lost notes that the connection broke.
func (a *Attachment) Lost() {
	a.mu.Lock()
	keeping := a.keeping
	a.mu.Unlock()
	if keeping { // it had said goodbye, and will not be back
		a.s.Participants().Leave(a.p)
	}
	a.s.Participants().Lost(a.p, context.Cause(a.life))
	a.end(errors.New("the connection broke"))
}
