package copilot

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/position"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// leaveTimeout bounds how long Close waits for the server's goodbye.
const leaveTimeout = 5 * time.Second

// Session is one conversation with an agent. Its methods may be called concurrently.
type Session struct {
	client *Client
	id     string
	part   *participant // nil for a handle
	pos    *position.Progress
	info   *SessionInfo
	// begin is where Events begins unless told otherwise.
	begin cursorStart

	// ctx ends with the session's use by this program.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// CreateSession makes a session and takes part in it. ctx bounds the call alone.
func (c *Client) CreateSession(ctx context.Context, opts SessionOptions) (*Session, error) {
	tools, err := toolsByName(opts.Tools)
	if err != nil {
		return nil, err
	}
	start, err := opts.createStart(tools)
	if err != nil {
		return nil, err
	}
	return c.attach(ctx, opts, tools, start)
}

// ResumeSession opens a session again, from the CLI's history if need be, and takes part
// in it. It leaves a session.resume event. ctx bounds the call alone.
func (c *Client) ResumeSession(ctx context.Context, id string, opts SessionOptions) (*Session, error) {
	tools, err := toolsByName(opts.Tools)
	if err != nil {
		return nil, err
	}
	start, err := opts.resumeStart(id, tools)
	if err != nil {
		return nil, err
	}
	return c.attach(ctx, opts, tools, start)
}

// openAttempts bounds how often OpenSession tries, while others create and delete the session.
const openAttempts = 5

// OpenSession resumes a session, as [Client.ResumeSession] does, or creates it with this id if there is none.
// Programs that call it at the same time open the same session. ctx bounds the call alone.
func (c *Client) OpenSession(ctx context.Context, id string, opts SessionOptions) (s *Session, err error) {
	creating := opts
	creating.ID = id
	if opts.RequestID != "" {
		creating.RequestID = opts.RequestID + "-create" // one id is for one call
	}
	for range openAttempts {
		if s, err = c.ResumeSession(ctx, id, opts); !IsReason(err, ReasonSessionNotFound) {
			return s, err
		}
		if s, err = c.CreateSession(ctx, creating); !IsReason(err, ReasonSessionExists) {
			return s, err
		}
	}
	return s, err
}

// JoinSession takes part in a session that is open already. It leaves no trace in the
// session's history. ctx bounds the call alone.
func (c *Client) JoinSession(ctx context.Context, id string, opts SessionOptions) (*Session, error) {
	tools, err := toolsByName(opts.Tools)
	if err != nil {
		return nil, err
	}
	start, err := opts.joinStart(id)
	if err != nil {
		return nil, err
	}
	return c.attach(ctx, opts, tools, start)
}

// Session gives a handle on a session without taking part in it: it sends, watches and
// resolves, but has no tools and handlers. It asks the server nothing.
func (c *Client) Session(id string) *Session {
	s := &Session{client: c, id: id, pos: new(position.Progress), info: newSessionInfo(&bridgev1.Session{SessionId: id})}
	s.ctx, s.cancel = context.WithCancelCause(c.ctx)
	return s
}

func (c *Client) attach(
	ctx context.Context, opts SessionOptions, tools map[string]Tool, start *bridgev1.AttachStart,
) (*Session, error) {
	handlers, err := opts.handlers()
	if err != nil {
		return nil, err
	}
	p := newParticipant(ctx, c, opts, tools, handlers)
	if opts.ModelTransport != nil {
		for _, h := range []Handler{Handle(p.models.Start), Handle(p.models.Feed)} {
			p.handlers.byKind[handlerKey{kind: h.kind}] = h
		}
	}
	started, err := p.open(ctx, start)
	if err != nil {
		return nil, err
	}
	s := &Session{client: c, id: p.sessionID, part: p, pos: p.pos, info: newSessionInfo(started.GetSession())}
	if start.GetCreate() == nil {
		s.begin = cursorStart{after: started.GetSession().GetPosition(), tail: true}
	}
	s.ctx, s.cancel = context.WithCancelCause(c.ctx)
	if err := c.keep(s); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// ID is the session's id.
func (s *Session) ID() string { return s.id }

// Info is the session as it was when it was opened; for a handle, only its id. It is
// not to be changed. [Session.Get] asks how it is now.
func (s *Session) Info() *SessionInfo { return s.info }

// ParticipantID is the id of this participant; empty for a handle. It changes when the
// participant had to join anew.
func (s *Session) ParticipantID() string {
	if s.part == nil {
		return ""
	}
	s.part.mu.Lock()
	defer s.part.mu.Unlock()
	return s.part.id
}

// Position is the latest position of the session's journal that this client has heard
// of; nil if none. It is not to be changed.
func (s *Session) Position() *bridgev1.Position { return s.pos.Last() }

// Done is closed when the participation is over: closed, disconnected, deleted, or not
// to be restored after its connection broke. For a handle, when it is closed.
func (s *Session) Done() <-chan struct{} {
	if s.part == nil {
		return s.ctx.Done()
	}
	return s.part.done
}

// Err says why the participation is over: [ErrClosed] after Close, a [*ClosedError] when
// the server ended it, an [*Error] when it could not be restored. Before, it is nil.
func (s *Session) Err() error {
	select {
	case <-s.Done():
	default:
		return nil
	}
	if s.part == nil {
		return context.Cause(s.ctx)
	}
	return context.Cause(s.part.ctx)
}

// Close leaves the session: its tools go, its handlers' contexts end, its event sequences
// end. The session itself lives on, unless its lifetime says otherwise. Handlers that are
// running are not waited for, so that a handler may call it.
func (s *Session) Close() error {
	return s.end(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		defer cancel()
		return s.part.leave(ctx, false)
	})
}

// Disconnect leaves the session and ends its use: unless other participants are there, its
// turn is aborted, and it is NOT_FOUND until it is resumed. Its history stays. Like Close, it
// ends the event sequences. ctx bounds the wait for the server; when that is in vain, the
// participation goes on.
func (s *Session) Disconnect(ctx context.Context) error {
	if s.part == nil || s.part.ctx.Err() != nil {
		_, err := s.client.sessions.DisconnectSession(ctx, &bridgev1.DisconnectSessionRequest{SessionId: s.id})
		return FromError(err)
	}
	// A broken stream is waited for: its participant counts as there until it leaves.
	if _, err := s.part.live(ctx); err != nil {
		return FromError(err)
	}
	return s.end(func() error { return s.part.leave(ctx, true) })
}

// Delete deletes the session and its history for good.
func (s *Session) Delete(ctx context.Context) error {
	if err := s.client.DeleteSession(ctx, s.id); err != nil {
		return err
	}
	return s.Close()
}

// end runs leave for a participant that is still there, and ends everything of the
// session in this program.
func (s *Session) end(leave func() error) error {
	var err error
	if s.part != nil && s.part.ctx.Err() == nil {
		err = leave()
	}
	s.client.forget(s)
	s.cancel(ErrClosed)
	return FromError(err)
}

// SetTools replaces the tools of this participant. Calls that are running go on. Of tools
// that the session owns only the handlers are replaced: the session keeps those it has.
func (s *Session) SetTools(ctx context.Context, tools ...Tool) error {
	if s.part == nil {
		return errNoParticipant
	}
	byName, err := toolsByName(tools)
	if err != nil {
		return err
	}
	return s.part.setTools(ctx, byName)
}

// newRequestID makes an id under which a call may be repeated.
func newRequestID() string { return rand.Text() }
