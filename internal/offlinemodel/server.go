package offlinemodel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/loopback"
)

// DefaultMaxBodyBytes bounds a request body unless the options say otherwise.
const DefaultMaxBodyBytes = 64 << 20

// Options configure a server. The zero value is good.
type Options struct {
	// Addr is the loopback address to listen on; empty means 127.0.0.1:0. Any
	// other interface is refused: the endpoint shows captured credentials.
	Addr string
	// Script is played at the root; nil means [Default].
	Script *Script
	// Logger gets one debug line per request, without headers or bodies.
	Logger *slog.Logger
	// MaxBodyBytes bounds a request body; 0 means [DefaultMaxBodyBytes].
	MaxBodyBytes int64
}

// Server is a running endpoint. It is itself the scope at the root.
type Server struct {
	*Scope

	logger  *slog.Logger
	http    *http.Server
	maxBody int64
	served  chan struct{} // closed when the listener is done

	mu     sync.Mutex
	scopes map[string]*Scope
}

// Start listens and serves until Close. The context bounds the start only.
func Start(ctx context.Context, opts Options) (*Server, error) {
	script := opts.Script
	if script == nil {
		script = Default()
	}
	p, err := compile(script)
	if err != nil {
		return nil, err
	}
	listener, err := listenLoopback(ctx, cmp.Or(opts.Addr, "127.0.0.1:0"))
	if err != nil {
		return nil, err
	}
	s := &Server{
		logger:  cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)),
		maxBody: cmp.Or(opts.MaxBodyBytes, DefaultMaxBodyBytes),
		served:  make(chan struct{}), scopes: map[string]*Scope{},
	}
	// The root scope outlives the start: Close ends it.
	s.Scope = newScope(context.WithoutCancel(ctx), "", "http://"+listener.Addr().String(), p, func() {})
	s.http = &http.Server{
		Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),
	}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.logger.Error("offline model stopped serving", slog.Any("error", err))
		}
	}()
	return s, nil
}

func listenLoopback(ctx context.Context, addr string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("offline model address: %w", err)
	}
	if !loopback.Host(host) {
		return nil, fmt.Errorf("offline model address %q is not a loopback address", addr)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("offline model: %w", err)
	}
	if bound, ok := listener.Addr().(*net.TCPAddr); !ok || !bound.IP.IsLoopback() {
		return nil, errors.Join(
			fmt.Errorf("offline model address %q is not a loopback address", addr), listener.Close())
	}
	return listener, nil
}

var notInURL = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// NewScope opens a scope for a script under a separate URL. Characters of the name that do not belong in a path become
// dashes, so a test's name will do.
func (s *Server) NewScope(name string, script *Script) (*Scope, error) {
	p, err := compile(script)
	if err != nil {
		return nil, err
	}
	name = notInURL.ReplaceAllString(name, "-")
	if name == "" {
		return nil, errors.New("offline model: a scope needs a name")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.scopes[name]; taken {
		return nil, fmt.Errorf("offline model: the scope %q exists already", name)
	}
	scope := newScope(s.ctx, name, s.base+scopePrefix+name, p, func() { s.forgetScope(name) })
	s.scopes[name] = scope
	return scope, nil
}

func (s *Server) forgetScope(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.scopes, name)
}

// Close stops the server: requests that wait are dropped, replies that are
// being played may end until the context does.
func (s *Server) Close(ctx context.Context) error {
	s.cancel(errClosed)
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("offline model shutdown: %w", err), s.http.Close())
	}
	<-s.served
	return err
}
