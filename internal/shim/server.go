package shim

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// DefaultGrace is how long a broken connection to the bridge may last before the programs see an error.
const DefaultGrace = time.Minute

// leaveTimeout bounds how long the end of a connection waits for the bridge to know of it.
const leaveTimeout = 5 * time.Second

// Config is what a Server needs.
type Config struct {
	// Bridge is the connection to the bridge; required. The server does not close it.
	Bridge grpc.ClientConnInterface
	// Token is the token that connections must present in connect; "" if none is required.
	Token string
	// Profile is what the runtimes are to be like, as far as it differs from the bridge's
	// own; nil for no difference.
	Profile *bridgev1.RuntimeProfile
	// Shutdown ends the bridge, where it is the shim's own. runtime.shutdown calls it once, when the
	// connections have left their sessions, and is answered when it has returned. Default: nothing.
	Shutdown func()
	// Hosts are given to the bridge too, if it is the shim's own. Nil: the bridge refuses the methods host.*.
	Hosts *Hosts
	// Grace is how long the connection to the bridge may be broken. Default: DefaultGrace.
	Grace time.Duration
	// Logger gets what is odd, never contents. Default: nowhere.
	Logger *slog.Logger

	// linger is how long connections stay open after runtime.shutdown. Default: defaultLinger.
	linger time.Duration
}

// Server serves the CLI's JSON-RPC.
type Server struct {
	config  Config
	tables  *tables
	counter *counter
	// key is of the providers of this server, for the profiles of its runtimes.
	key string

	mu        sync.Mutex
	conns     map[*conn]struct{}
	profile   *bridgev1.RuntimeProfile
	providers providers

	end *ending
}

// New returns a Server.
func New(c Config) (*Server, error) {
	if c.Bridge == nil {
		return nil, errors.New("shim: no connection to a bridge")
	}
	if c.Grace <= 0 {
		c.Grace = DefaultGrace
	}
	c.linger = cmp.Or(c.linger, defaultLinger)
	if c.Shutdown == nil {
		c.Shutdown = func() {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	t, err := newTables()
	if err != nil {
		return nil, err
	}
	s := &Server{
		config: c, tables: t, counter: newCounter(), key: "shim-" + rand.Text(),
		conns: map[*conn]struct{}{}, profile: &bridgev1.RuntimeProfile{}, end: newEnding(),
	}
	if c.Profile != nil {
		s.profile = proto.CloneOf(c.Profile)
	}
	return s, nil
}

// Counts returns how often each method went which way so far.
func (s *Server) Counts() Counts { return s.counter.snapshot() }

// Down is closed when a program has asked for the end, by runtime.shutdown, and is answered.
func (s *Server) Down() <-chan struct{} { return s.end.answered.Done() }

// shutdown has every connection leave its sessions, and ends the bridge if that is the shim's own.
func (s *Server) shutdown() {
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	var leaving sync.WaitGroup
	for _, c := range conns {
		leaving.Go(func() {
			c.sessions.leave()
			c.end() // nothing is watched any more
		})
	}
	leaving.Wait()
	s.config.Shutdown()
}

// Serve serves one connection until its program ends it, a stop is requested, or ctx ends. Its participants have left
// when it returns. trusted connections need no token.
func (s *Server) Serve(ctx context.Context, rwc io.ReadWriteCloser, trusted bool) error {
	c := newConn(ctx, s, rwc, trusted)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	return c.serve(ctx)
}

// Listen serves every connection of l until ctx ends or a program asks for the end, and
// then waits for them.
func (s *Server) Listen(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var conns sync.WaitGroup
	defer conns.Wait()
	conns.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.end.answered.Done():
			awaitLinger(ctx, s.config.linger, nil)
		}
		_ = l.Close() // ends Accept
	})
	for {
		nc, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || s.end.begun.Load() {
				return nil
			}
			cancel()
			return err
		}
		conns.Go(func() {
			if err := s.Serve(ctx, nc, false); err != nil {
				s.config.Logger.Info("connection ended", slog.Any("error", err))
			}
		})
	}
}

// ended reports whether a connection's end is not a failure. A program that ends while a message is sent to it is not
// a failure either.
func ended(err error) bool {
	return slices.ContainsFunc([]error{
		rpcconn.ErrPeerClosed, rpcconn.ErrLocalClose, io.ErrClosedPipe, syscall.EPIPE, syscall.ECONNRESET,
	}, func(end error) bool { return errors.Is(err, end) })
}
