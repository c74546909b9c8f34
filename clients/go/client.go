package copilot

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"google.golang.org/grpc"
)

// Client talks to one copilot-grpc server. Its methods may be called concurrently.
type Client struct {
	conn      grpc.ClientConnInterface
	closeConn func() error
	log       *slog.Logger
	name      string
	reconnect ReconnectPolicy
	tracing   Tracing

	sessions  bridgev1.SessionServiceClient
	events    bridgev1.EventServiceClient
	callbacks bridgev1.CallbackServiceClient
	runtimes  bridgev1.RuntimeServiceClient
	raw       bridgev1.RawServiceClient

	// ctx ends with the client; every stream lives under it.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	open   map[*Session]struct{}

	closing  sync.Once
	closeErr error
}

// NewClient makes a client over an existing connection, which stays the caller's to
// close. Only options that do not concern the connection have an effect.
func NewClient(conn grpc.ClientConnInterface, opts ...Option) *Client {
	return newClient(conn, nil, newSettings(opts))
}

func newClient(conn grpc.ClientConnInterface, closeConn func() error, st *settings) *Client {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Client{
		conn:      conn,
		closeConn: closeConn,
		log:       st.log,
		name:      st.name,
		reconnect: st.reconnect,
		tracing:   st.tracing,
		sessions:  bridgev1.NewSessionServiceClient(conn),
		events:    bridgev1.NewEventServiceClient(conn),
		callbacks: bridgev1.NewCallbackServiceClient(conn),
		runtimes:  bridgev1.NewRuntimeServiceClient(conn),
		raw:       bridgev1.NewRawServiceClient(conn),
		ctx:       ctx,
		cancel:    cancel,
		open:      make(map[*Session]struct{}),
	}
}

// Conn is the connection beneath, for generated clients that have no accessor here.
func (c *Client) Conn() grpc.ClientConnInterface { return c.conn }

// Sessions is the generated client of SessionService.
func (c *Client) Sessions() bridgev1.SessionServiceClient { return c.sessions }

// EventStreams is the generated client of EventService.
func (c *Client) EventStreams() bridgev1.EventServiceClient { return c.events }

// Callbacks is the generated client of CallbackService.
func (c *Client) Callbacks() bridgev1.CallbackServiceClient { return c.callbacks }

// Runtimes is the generated client of RuntimeService.
func (c *Client) Runtimes() bridgev1.RuntimeServiceClient { return c.runtimes }

// Raw is the generated client of RawService.
func (c *Client) Raw() bridgev1.RawServiceClient { return c.raw }

// ServerInfo returns the server's version, capabilities and limits.
func (c *Client) ServerInfo(ctx context.Context) (*bridgev1.GetServerInfoResponse, error) {
	info, err := c.runtimes.GetServerInfo(ctx, &bridgev1.GetServerInfoRequest{})
	return info, FromError(err)
}

// ListOptions selects what [Client.ListSessions] yields. The zero value selects all sessions of the server.
type ListOptions struct {
	// Only matching sessions.
	Filter *SessionFilter
	// Also the sessions of the CLI's history that were never opened through the server, such as those of a person at a
	// terminal with the same home.
	IncludeHistory bool
}

// ListSessions yields the caller's sessions, last used first, and fetches pages as
// they are needed. An error ends the sequence.
func (c *Client) ListSessions(ctx context.Context, opts ListOptions) iter.Seq2[*SessionInfo, error] {
	return func(yield func(*SessionInfo, error) bool) {
		req := &bridgev1.ListSessionsRequest{Filter: opts.Filter, IncludeHistory: opts.IncludeHistory}
		for {
			page, err := c.sessions.ListSessions(ctx, req)
			if err != nil {
				yield(nil, FromError(err))
				return
			}
			for _, s := range page.Sessions {
				if !yield(newSessionInfo(s), nil) {
					return
				}
			}
			if page.NextPageToken == "" {
				return
			}
			req.PageToken = page.NextPageToken
		}
	}
}

// DeleteSession deletes a session and its history for good.
func (c *Client) DeleteSession(ctx context.Context, sessionID string) error {
	_, err := c.sessions.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: sessionID})
	return FromError(err)
}

// Close leaves all sessions (which live on, unless their lifetime says otherwise), closes the
// connection if Dial opened it, and ends a private server. It may be called again.
func (c *Client) Close() error {
	c.closing.Do(func() {
		c.leaveAll()
		c.cancel(ErrClosed)
		if c.closeConn != nil {
			c.closeErr = c.closeConn()
		}
	})
	return c.closeErr
}

func (c *Client) leaveAll() {
	c.mu.Lock()
	c.closed = true
	open := make([]*Session, 0, len(c.open))
	for s := range c.open {
		open = append(open, s)
	}
	c.mu.Unlock()
	var leaving sync.WaitGroup
	for _, s := range open {
		leaving.Go(func() { _ = s.Close() })
	}
	leaving.Wait()
}

// keep registers a session, so that Close leaves it.
func (c *Client) keep(s *Session) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.open[s] = struct{}{}
	return nil
}

func (c *Client) forget(s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, s)
}

// ErrClosed says that the client or session was closed by its own program.
var ErrClosed = errors.New("copilot: closed")
