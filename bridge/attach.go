package bridge

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/caller"
	"github.com/copilot-grpc/copilot-grpc/internal/frame"
	"github.com/copilot-grpc/copilot-grpc/internal/observe"
	"github.com/copilot-grpc/copilot-grpc/internal/reason"
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
	// maxAnswers bounds a participant's answers under way; past it its frames wait.
	maxAnswers = 32
)

// errLeft is the cause with which a participant's stream ends by its own wish.
var errLeft = errors.New("the participant left")

// Attachment is a participant's stream.
type Attachment struct {
	b *Bridge
	s *session.Session
	p *session.Participant

	started *bridgev1.AttachStarted
	start   *bridgev1.AttachStart
	// opening, if set, gives what became of a session that is still being opened while
	// its participant is asked already.
	opening chan opened
	options options
	begin   cursor
	stream  *stream

	// life ends when the participation does, with the cause.
	life     context.Context
	end      context.CancelCauseFunc
	commands chan *bridgev1.AttachCommand
	out      chan frame.Frame
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
func (b *Bridge) Attach(ctx context.Context, start *bridgev1.AttachStart) (*Attachment, error) {
	a := &Attachment{
		b: b, start: start, commands: make(chan *bridgev1.AttachCommand, commandQueue),
		out: make(chan frame.Frame, commandQueue+maxAnswers), answers: make(chan struct{}, maxAnswers),
		parts: make(chan *bridgev1.ModelResponse, modelQueue),
	}
	if err := b.accepting(); err != nil {
		return nil, err
	}
	join, err := a.joining()
	if err != nil {
		return nil, err
	}
	release, err := b.admitParticipant(caller.From(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	defer release()
	a.life, a.end = context.WithCancelCause(context.WithoutCancel(ctx))
	join.Replace = a.end
	s, joined, err := a.arrive(ctx, join)
	if err != nil {
		a.end(err)
		return nil, a.refusal(err)
	}
	if err := a.follow(s, joined); err != nil {
		a.Leave()
		return nil, err
	}
	if a.opening == nil {
		a.started = a.startedAs(joined)
	}
	return a, nil
}

// follow makes the stream of the participant's frames.
func (a *Attachment) follow(s *session.Session, joined session.Joined) error {
	a.s, a.p = s, joined.Participant
	a.stream = a.b.newStream(a.options)
	f, err := a.stream.follow(s, a.begin, a.start.GetFilter(), "start.")
	if err != nil {
		return err
	}
	f.callbacks, f.participant, f.exact = true, a.p.ID, a.start.GetExact()
	a.stream.extra = a.out
	a.stream.stay = s.TurnRunning // the turn may need the participant
	return nil
}

func (a *Attachment) startedAs(joined session.Joined) *bridgev1.AttachStarted {
	started := &bridgev1.AttachStarted{
		ParticipantId: a.p.ID, Token: a.p.Token, Session: a.s.Snapshot(), Returned: joined.Returned,
	}
	a.answered(started)
	return started
}

// joining checks what the participant brings.
func (a *Attachment) joining() (session.Joining, error) {
	start := a.start
	var err error
	if a.options, err = newOptions(start.GetOptions()); err != nil {
		return session.Joining{}, within(err, "start.")
	}
	if _, err = newFilter(start.GetFilter(), "start.filter"); err != nil {
		return session.Joining{}, err
	}
	if err := known(start.GetStart(), "start.start"); err != nil {
		return session.Joining{}, err
	}
	if len(start.GetName()) > maxName {
		return session.Joining{}, fault.New(fault.InvalidField, "longer than %d characters", maxName).WithField("start.name")
	}
	grace, err := duration(start.GetGrace(), "start.grace", 0, maxGrace)
	if err != nil {
		return session.Joining{}, err
	}
	if start.GetGrace() == nil {
		grace = defaultGrace
	}
	tools, err := a.b.tools(start.GetTools(), "start.tools", start.GetExact())
	if err != nil {
		return session.Joining{}, err
	}
	j := session.Joining{Name: start.GetName(), Token: start.GetToken(), Tools: tools, Grace: grace, Exact: start.GetExact()}
	if j.Commands, j.Own, err = a.b.declared(start, "start."); err != nil {
		return session.Joining{}, err
	}
	if h, err := handling(start.GetHandlers(), "start.handlers"); err != nil {
		return session.Joining{}, err
	} else if h != nil {
		j.Handling = *h
	}
	return j, nil
}

// tools gives tools the CLI's form.
func (b *Bridge) tools(list []*cliv1.ToolDefinition, at string, exact bool) ([]session.Tool, error) {
	_, tools, err := b.config(&cliv1.SessionConfig{Tools: list}, at, exact)
	if err != nil {
		return nil, rename(err, at+".tools", at)
	}
	if tools == nil {
		return nil, nil
	}
	return *tools, nil
}

// declared gives what a participant declares beside its tools the CLI's form: its commands,
// and what is bound to a connection of its own. at is where the start is, with its dot.
func (b *Bridge) declared(start *bridgev1.AttachStart, at string) ([]session.Command, session.Object, error) {
	own, _, err := b.config(&cliv1.SessionConfig{
		Commands: start.GetCommands(), Canvases: start.GetCanvases(),
		ExtensionInfo: start.GetExtensionInfo(), CanvasProvider: start.GetCanvasProvider(),
	}, "config", start.GetExact())
	if err != nil {
		return nil, nil, rename(err, "config.", at)
	}
	commands, err := session.ParseCommands(own.Get("commands"), at+"commands")
	own.Set("commands", nil)
	if err == nil && strings.HasPrefix(start.GetCanvasProvider().GetId(), "connection:") {
		err = fault.New(fault.InvalidField, `ids that begin with "connection:" are the CLI's`).WithField(at + "canvas_provider.id")
	}
	return commands, own, err
}

// rename replaces the beginning of the field that an error names.
func rename(err error, from, to string) error {
	if f, ok := asFault(err); ok && len(f.Field) >= len(from) && f.Field[:len(from)] == from {
		return f.WithField(to + f.Field[len(from):])
	}
	return err
}

// come comes by the session in the way that the start says.
func (a *Attachment) come(ctx context.Context, j session.Joining) (s *session.Session, joined session.Joined, err error) {
	a.begin = cursor{after: a.start.GetAfter(), tail: a.start.GetStart() != bridgev1.Start_START_BEGINNING}
	switch how := a.start.GetSession().(type) {
	case *bridgev1.AttachStart_Create:
		a.begin = cursor{}
		return a.once(ctx, how.Create.GetRequestId(), j, func() (*session.Session, session.Joined, error) {
			return a.create(ctx, how.Create, &j)
		})
	case *bridgev1.AttachStart_Resume:
		if a.begin.after == nil && a.begin.tail {
			// What happens in the course of the resume is new to the participant.
			if s, err := a.b.open(ctx, how.Resume.GetSessionId()); err == nil {
				a.begin.after = session.Proto(s.Journal().Last())
			}
		}
		return a.once(ctx, how.Resume.GetRequestId(), j, func() (*session.Session, session.Joined, error) {
			return a.b.resume(ctx, how.Resume, "resume.", &j)
		})
	case *bridgev1.AttachStart_JoinSessionId:
		s, err := a.b.open(ctx, how.JoinSessionId)
		if err != nil {
			return nil, joined, rename(err, "session_id", "join_session_id")
		}
		joined.Participant, joined.Returned, err = s.Join(ctx, j)
		return s, joined, err
	default:
		return nil, joined, fault.New(fault.InvalidField, "one of create, resume, join_session_id is required").WithField("session")
	}
}

// once opens the session, unless a start with the same request id did before: then the
// caller takes the place of the participant that came with it, whose token it may never
// have seen.
func (a *Attachment) once(ctx context.Context, id string, j session.Joining, open func() (*session.Session, session.Joined, error)) (s *session.Session, joined session.Joined, err error) {
	first := false
	m, err := a.b.once.Do(ctx, scoped(ctx, "Attach"), id, a.start, func() (proto.Message, error) {
		first = true
		if s, joined, err = open(); err != nil {
			return nil, err
		}
		return &bridgev1.AttachStarted{Token: joined.Participant.Token, Session: &bridgev1.Session{SessionId: s.ID()}}, nil
	})
	if err != nil || first {
		return s, joined, err
	}
	started := m.(*bridgev1.AttachStarted)
	if s, err = a.b.open(ctx, started.GetSession().GetSessionId()); err != nil {
		return nil, joined, err
	}
	j.Token = started.GetToken()
	joined.Participant, joined.Returned, err = s.Join(ctx, j)
	if fault.ReasonOf(err) == fault.ParticipantNotFound { // its grace time is over
		j.Token = ""
		joined.Participant, joined.Returned, err = s.Join(ctx, j)
	}
	return s, joined, err
}

// Stream sends the participant's frames until the participation ends.
func (a *Attachment) Stream(ctx context.Context, sink frame.Sink) error {
	defer a.stream.close()
	a.stream.to(sink)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(a.life, func() { cancel(context.Cause(a.life)) })
	defer stop()
	a.begun(func() { a.runCommands(ctx) })
	a.begun(func() { a.runParts(ctx) })
	err := sink(frame.Frame{Message: a.first(ctx)})
	if err == nil {
		err = a.stream.run(ctx)
	}
	cancel(errLeft)
	a.join()
	if a.refused != nil {
		return a.refused
	}
	switch context.Cause(a.life) {
	case errLeft:
		if err := a.stream.rest(); err != nil {
			return err
		}
		return a.stream.closeAll(bridgev1.CloseReason_CLOSE_REASON_LEFT)
	case session.ErrReplaced:
		_ = a.stream.closeAll(bridgev1.CloseReason_CLOSE_REASON_REPLACED) // the status says it too
		return session.ErrReplaced
	}
	return err
}

// begun runs f on a goroutine that the stream joins; after the stream's end it does not.
func (a *Attachment) begun(f func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.work.Go(f)
	}
	return !a.over
}

// join waits for what was begun.
func (a *Attachment) join() {
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
	a.work.Wait()
}

// Handle takes a frame of the participant. What fails is told on the stream; an error
// ends it.
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
		a.begun(func() {
			defer func() { <-a.answers }()
			a.answer(ctx, f.Answer)
		})
	case *bridgev1.AttachRequest_Command:
		select {
		case a.commands <- f.Command:
		default:
			err := fault.New(fault.LimitExceeded, "%d commands are waiting", commandQueue).With("limit", "commands")
			a.b.cfg.Observer.Refused(err)
			a.reply(ctx, commandFailed(f.Command, err))
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
	case *bridgev1.AttachRequest_Start:
		return fault.New(fault.FrameUnexpected, "start may only be the first frame").WithField("start")
	default:
		return fault.New(fault.FrameUnexpected, "the frame is empty").WithField("frame")
	}
	return nil
}

// leave carries out the participant's goodbye. Where that ends the use of the session, its
// stream ends when it has, so that what the caller does next finds it so.
func (a *Attachment) leave(disconnect bool) {
	last := a.s.Alone(a.p)
	if !disconnect && !(last && a.s.EndsWithLast()) {
		a.Leave()
		return
	}
	// A session with participants stays. But the last of them goes after it: there may be
	// something to be written, or a hook to be told.
	a.mu.Lock()
	a.disconnecting, a.keeping = true, last
	a.mu.Unlock()
	if !last {
		a.Leave()
	}
	a.b.Go(func(ctx context.Context) {
		defer a.end(errLeft)
		ctx, cancel := context.WithTimeout(ctx, closeTimeout)
		defer cancel()
		patience := time.AfterFunc(leavePatience, func() { a.s.Leave(a.p) })
		defer patience.Stop()
		if _, err := a.s.DisconnectWith(ctx, a.p); err != nil {
			a.b.log.Warn("session not disconnected", "session_id", a.s.ID(), "error", err)
		}
		a.s.Leave(a.p)
	})
}

// Leave ends the participation at once: the caller says nothing more.
func (a *Attachment) Leave() {
	a.mu.Lock()
	disconnecting := a.disconnecting
	a.mu.Unlock()
	a.s.Leave(a.p)
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
		a.s.Leave(a.p)
	}
	a.s.Lost(a.p, context.Cause(a.life))
	a.end(errors.New("the connection broke"))
}

// runCommands carries out commands in the order they came.
func (a *Attachment) runCommands(ctx context.Context) {
	ctx = observe.Apart(ctx)
	for {
		select {
		case c := <-a.commands:
			done, err := a.command(ctx, c)
			if err != nil {
				a.b.cfg.Observer.Refused(err)
				a.reply(ctx, commandFailed(c, err))
				continue
			}
			done.Of = &bridgev1.AttachDone_CommandId{CommandId: c.GetCommandId()}
			a.reply(ctx, &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Done{Done: done}})
		case <-ctx.Done():
			return
		}
	}
}

func (a *Attachment) command(ctx context.Context, c *bridgev1.AttachCommand) (*bridgev1.AttachDone, error) {
	done := func(p journal.Position, err error) (*bridgev1.AttachDone, error) {
		return &bridgev1.AttachDone{Position: session.Proto(p)}, err
	}
	switch do := c.GetCommand().(type) {
	case *bridgev1.AttachCommand_Send:
		sent, err := a.b.Send(ctx, &bridgev1.SendRequest{SessionId: a.s.ID(), RequestId: c.GetRequestId(), Prompt: do.Send})
		if err != nil {
			return nil, err
		}
		return &bridgev1.AttachDone{MessageId: sent.GetMessageId(), Position: sent.GetPosition()}, nil
	case *bridgev1.AttachCommand_Abort:
		_, at, err := a.s.Abort(ctx)
		return done(at, err)
	case *bridgev1.AttachCommand_SetTools:
		tools, err := a.b.tools(do.SetTools.GetTools(), "command.set_tools.tools", a.start.GetExact())
		if err != nil {
			return nil, err
		}
		return done(a.s.Journal().Last(), a.s.Change(ctx, a.p, &tools, nil))
	case *bridgev1.AttachCommand_SetHandlers:
		h, err := handling(do.SetHandlers, "command.set_handlers")
		if err != nil {
			return nil, err
		}
		return done(a.s.Journal().Last(), a.s.Change(ctx, a.p, nil, h))
	default:
		return nil, fault.New(fault.InvalidField, "the command is empty").WithField("command")
	}
}

// answer carries out an answer.
func (a *Attachment) answer(ctx context.Context, c *bridgev1.CallbackAnswer) {
	at, err := a.b.resolve(ctx, a.s, c.GetCallbackId(), a.p.ID, c.GetAnswer(), answerAt{"answer", a.start.GetExact()})
	if err != nil {
		a.reply(ctx, failed(&bridgev1.AttachFailed{Of: &bridgev1.AttachFailed_CallbackId{CallbackId: c.GetCallbackId()}}, err))
		return
	}
	a.reply(ctx, &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Done{Done: &bridgev1.AttachDone{
		Of: &bridgev1.AttachDone_CallbackId{CallbackId: c.GetCallbackId()}, Position: session.Proto(at),
	}}})
}

// reply hands a frame to the stream.
func (a *Attachment) reply(ctx context.Context, r *bridgev1.AttachResponse) {
	select {
	case a.out <- frame.Frame{Message: r}:
	case <-a.life.Done():
	case <-ctx.Done():
	}
}

// commandFailed is the frame that says why a command failed.
func commandFailed(c *bridgev1.AttachCommand, err error) *bridgev1.AttachResponse {
	return failed(&bridgev1.AttachFailed{Of: &bridgev1.AttachFailed_CommandId{CommandId: c.GetCommandId()}}, err)
}

// failed is the frame that says why something failed.
func failed(what *bridgev1.AttachFailed, err error) *bridgev1.AttachResponse {
	what.Failure, _ = reason.Failure(session.Classify(err, ""))
	return &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Failed{Failed: what}}
}
