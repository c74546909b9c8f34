package copilot

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/models"
	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/notify"
	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/position"
	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/worker"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// heartbeat is how often each side of an Attach stream gives a sign of life: under
	// the idle timeout of the usual proxies.
	heartbeat = 20 * time.Second
	// silence is how long a stream may be mute before it counts as broken.
	silence = 3 * heartbeat
)

// participant is this program's part in one session: one Attach stream after another,
// and the handlers that answer what comes on them.
type participant struct {
	client    *Client
	opts      SessionOptions
	log       *slog.Logger
	sessionID string
	pos       *position.Progress
	handlers  *handlers
	calls     *calls
	models    *models.Requests
	changes   *notify.Queue[ConnectionChange]

	// ctx ends, with the reason as its cause, when the participation is over.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// done is closed when no stream is left. Handlers may still be returning.
	done chan struct{}
	// goodbye says, after done, that the server ended the participation itself.
	goodbye bool
	// settingTools makes changes of the tools wait for each other.
	settingTools sync.Mutex

	mu       sync.Mutex
	link     *link         // nil while there is none
	changed  chan struct{} // closed and replaced whenever link changes
	id       string
	token    string
	leaving  bool
	commands map[string]chan *Error
}

func newParticipant(
	ctx context.Context, c *Client, opts SessionOptions, tools map[string]Tool, byKind map[handlerKey]Handler,
) *participant {
	p := &participant{
		client: c,
		opts:   opts,
		log:    c.log,
		pos:    new(position.Progress),
		handlers: &handlers{
			log: c.log, onPermission: opts.OnPermission, onRequest: opts.OnRequest, byKind: byKind, tools: tools,
		},
		changes:  notify.New(opts.OnConnection, c.log),
		done:     make(chan struct{}),
		changed:  make(chan struct{}),
		commands: make(map[string]chan *Error),
	}
	// The values of the caller's context (outgoing metadata, trace) hold for the whole
	// participation; its end only ends the opening.
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	p.calls = &calls{
		ctx: p.ctx, log: c.log, client: c, handlers: p.handlers, live: p.live, connected: p.connected,
		toolSlots:     make(chan struct{}, opts.maxConcurrentTools()),
		questionSlots: make(chan struct{}, maxConcurrentQuestions),
		worker:        worker.New(p.ctx),
		byID:          make(map[string]*call),
	}
	p.models = models.New(p.ctx, opts.ModelTransport, p.sendModelResponse)
	return p
}

// sendModelResponse sends a part of a model's response. If the link breaks, the server ends the response.
func (p *participant) sendModelResponse(ctx context.Context, part *bridgev1.ModelResponse) error {
	l, err := p.live(ctx)
	if err != nil {
		return err
	}
	return l.send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_ModelResponse{ModelResponse: part}})
}

// open makes the first link and starts the goroutine that keeps the participation up.
func (p *participant) open(ctx context.Context, start *bridgev1.AttachStart) (*bridgev1.AttachStarted, error) {
	p.complete(start)
	var first *link
	var started *bridgev1.AttachStarted
	err := retry(ctx, p.client.callPolicy(), func() (err error) {
		first, started, err = p.dial(ctx, start)
		return err
	})
	if err != nil {
		p.cancel(err)
		return nil, err
	}
	p.known(started.GetSession().GetSessionId())
	p.adopt(first, started)
	go p.run(first)
	return started, nil
}

// complete fills in what every start frame of this participant says.
func (p *participant) complete(start *bridgev1.AttachStart) {
	start.Name = p.opts.Name
	if start.Name == "" {
		start.Name = p.client.name
	}
	start.Tools = p.handlers.declared()
	start.Handlers = p.handlers.announced()
	start.Commands, start.Canvases = p.opts.Commands, p.opts.Canvases
	start.CanvasProvider, start.ExtensionInfo = p.opts.CanvasProvider, p.opts.ExtensionInfo
	if p.opts.Grace > 0 {
		start.Grace = durationpb.New(p.opts.Grace)
	}
	start.Start = bridgev1.StreamStart_STREAM_START_END
	start.Filter = &bridgev1.EventFilter{ExcludeAll: true} // events have separate streams
	start.Options = &bridgev1.StreamOptions{HeartbeatInterval: durationpb.New(heartbeat)}
}

// run keeps the participation up until it is over.
func (p *participant) run(l *link) {
	defer close(p.done)
	for {
		err := p.serve(l)
		if p.isOver(err) {
			p.goodbye = errors.As(err, new(*ClosedError))
			l.close()
			p.finish(err)
			return
		}
		p.log.Warn("attach stream broken", "error", err)
		p.changes.Add(ConnectionChange{State: ConnectionBroken, Err: err})
		next, err := p.reopen(l)
		if err != nil {
			p.finish(err)
			return
		}
		l = next
	}
}

// errGoAway ends the use of a link that the server is about to close.
var errGoAway = errors.New("copilot: the server asks to come again")

// isOver reports whether the participation is over, rather than only its stream.
func (p *participant) isOver(err error) bool {
	p.mu.Lock()
	leaving := p.leaving
	p.mu.Unlock()
	if leaving || p.ctx.Err() != nil {
		return true
	}
	if errors.Is(err, errGoAway) {
		return false
	}
	e := asError(err)
	return e == nil || !e.isBroken()
}

// reopen makes a link in place of an old one, which it closes only then: where the
// server asked to come again, the place changes hands without a gap.
func (p *participant) reopen(old *link) (*link, error) {
	defer old.close()
	b := newBackoff(p.client.reconnect)
	failure := &Error{tokenReplaced: p.lastError(old).tokenReplaced}
	state := ConnectionRestored
	for next(p.ctx, b, failure) {
		start := &bridgev1.AttachStart{
			Session:          &bridgev1.AttachStart_JoinSessionId{JoinSessionId: p.sessionID},
			ParticipantToken: p.currentToken(),
			After:            p.pos.Last(),
		}
		p.complete(start)
		l, started, err := p.redial(start)
		if err == nil {
			p.log.Info("attach stream restored", "returned", started.GetResumed())
			p.adopt(l, started)
			p.changes.Add(ConnectionChange{State: state})
			return l, nil
		}
		if e := asError(err); e != nil {
			failure = e
		} else {
			return nil, err
		}
		switch {
		case failure.Reason == bridgev1.ErrorReason_ERROR_REASON_PARTICIPANT_NOT_FOUND && start.ParticipantToken != "":
			p.forgetToken() // its grace time is over: join anew
			state = ParticipantExpired
		case !failure.isBroken():
			return nil, failure
		}
	}
	if p.ctx.Err() != nil {
		return nil, context.Cause(p.ctx)
	}
	if failure.Message == "" {
		failure = p.lastError(old)
	}
	return nil, failure
}

// redial opens a link in a bounded time: a server that is mute is tried again.
func (p *participant) redial(start *bridgev1.AttachStart) (*link, *bridgev1.AttachStarted, error) {
	ctx, cancel := context.WithTimeout(p.ctx, silence)
	defer cancel()
	return p.dial(ctx, start)
}

// lastError says why a link ended, for a participation that ends with it.
func (p *participant) lastError(l *link) *Error {
	if e := asError(l.err); e != nil {
		return e
	}
	return unavailable("the attach stream is broken")
}

// adopt puts a link in place.
func (p *participant) adopt(l *link, started *bridgev1.AttachStarted) {
	p.pos.Note(started.GetSession().GetPosition())
	p.mu.Lock()
	p.id = started.GetParticipantId()
	p.token = started.GetParticipantToken()
	p.mu.Unlock()
	p.setLink(l)
}

// known notes the session's id. Handlers may run from then on.
func (p *participant) known(sessionID string) {
	if p.sessionID != sessionID {
		p.sessionID = sessionID
		p.log = p.log.With("session_id", sessionID)
	}
}

// opening puts a link in place whose session is still being opened, and needs answers for
// that.
func (p *participant) opening(l *link, o *bridgev1.AttachOpening) {
	p.known(o.GetSessionId())
	p.mu.Lock()
	p.id, p.token = o.GetParticipantId(), o.GetParticipantToken()
	p.mu.Unlock()
	p.setLink(l)
}

// unset takes a link away that did not come to be.
func (p *participant) unset(l *link) {
	if p.connected() == l {
		p.setLink(nil)
	}
}

func (p *participant) setLink(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link = l
	close(p.changed)
	p.changed = make(chan struct{})
}

// connected returns the link, nil while there is none.
func (p *participant) connected() *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link
}

// live waits for a link. It fails only when ctx or the participation is over.
func (p *participant) live(ctx context.Context) (*link, error) {
	for {
		p.mu.Lock()
		l, changed := p.link, p.changed
		p.mu.Unlock()
		if l != nil {
			return l, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-p.ctx.Done():
			return nil, context.Cause(p.ctx)
		}
	}
}

// finish ends the participation for the reason that its last stream ended with.
func (p *participant) finish(err error) {
	p.mu.Lock()
	leaving := p.leaving
	p.mu.Unlock()
	if leaving {
		err = ErrClosed
	}
	p.cancel(err)
}

// leave ends the participation, and waits until its stream is over or ctx is.
func (p *participant) leave(ctx context.Context, disconnect bool) error {
	p.mu.Lock()
	l := p.link
	p.leaving = true
	p.mu.Unlock()
	if l == nil {
		p.cancel(ErrClosed) // no stream is opened any more
	} else {
		l.leave(disconnect)
	}
	select {
	case <-p.done:
		if !p.goodbye {
			p.leaveByToken(ctx)
		}
		return nil
	case <-ctx.Done():
		p.cancel(ErrClosed) // and with it the link
		<-p.done
		return context.Cause(ctx)
	}
}

// leavePolicy is how often a server is asked that is away while a participant leaves.
var leavePolicy = ReconnectPolicy{
	MinBackoff: 100 * time.Millisecond, MaxBackoff: 500 * time.Millisecond, GiveUpAfter: leaveTimeout,
}

// leaveByToken leaves without a stream, so that the participant does not keep its place for its grace time. It tries
// until ctx ends.
func (p *participant) leaveByToken(ctx context.Context) {
	req := &bridgev1.LeaveRequest{SessionId: p.sessionID, ParticipantToken: p.currentToken()}
	if req.ParticipantToken == "" {
		return
	}
	values := context.WithoutCancel(p.ctx) // as those of the stream
	b := newBackoff(leavePolicy)
	for {
		call, cancel := context.WithCancel(values)
		stop := context.AfterFunc(ctx, cancel)
		_, err := p.client.callbacks.Leave(call, req)
		stop()
		cancel()
		e := asError(err)
		switch {
		case e == nil, e.Code == codes.NotFound:
			return
		case !e.isBroken() || ctx.Err() != nil || !b.Wait(ctx, e.RetryAfter):
			p.log.Warn("participant not left: it keeps its place for its grace time", "error", err)
			return
		}
		if conn, ok := p.client.conn.(*grpc.ClientConn); ok {
			conn.ResetConnectBackoff()
		}
	}
}

func (p *participant) currentToken() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.token
}

func (p *participant) forgetToken() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.token = ""
}
