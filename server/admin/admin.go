// Package admin serves what those who run the server look at, on an address of its own that
// callers do not reach: whether it lives and is ready, its figures, its connections, and its
// profile.
package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"

	"github.com/copilot-grpc/copilot-grpc/internal/loopback"
	"github.com/copilot-grpc/copilot-grpc/server"
)

const (
	unixPrefix = "unix:"
	// headerTimeout bounds how long a request's head may take.
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// Config says what to serve.
type Config struct {
	// Listen is the address: "unix:PATH" or "HOST:PORT".
	Listen string
	// Wide lets others than this machine reach it. There is no identity here: whoever reaches
	// it may look.
	Wide bool
	// Metrics is the page of the figures; nil for none.
	Metrics http.Handler
	// Ready says why the server should get no calls now; nil if it should.
	Ready func() error
	// Logger takes what goes wrong. Default: slog.Default().
	Logger *slog.Logger
}

// Check tells what is wrong with an address.
func Check(address string, wide bool) error {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		if path == "" {
			return fmt.Errorf("admin address %q has no path", address)
		}
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("admin address %q is neither unix:PATH nor HOST:PORT: %w", address, err)
	}
	if !wide && !loopback.Host(host) {
		return fmt.Errorf("admin address %q is not on the loopback interface: whoever reaches it may look at everything there, "+
			"so that this takes --admin-wide", address)
	}
	return nil
}

// Server serves until it is closed.
type Server struct {
	config   Config
	listener net.Listener
	http     *http.Server
	grpc     *grpc.Server
	done     chan struct{}
}

// New opens the address and serves. The caller must Close it.
func New(ctx context.Context, c Config) (*Server, error) {
	if err := Check(c.Listen, c.Wide); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	l, err := server.Listen(ctx, c.Listen)
	if err != nil {
		return nil, fmt.Errorf("admin: listen on %q: %w", c.Listen, err)
	}
	s := &Server{config: c, listener: l, grpc: grpc.NewServer(), done: make(chan struct{})}
	channelz.RegisterChannelzServiceToServer(s.grpc)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // channelz is gRPC
	s.http = &http.Server{
		Handler: s.guard(s.routes()), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, Protocols: &protocols,
		ErrorLog: slog.NewLogLogger(c.Logger.Handler(), slog.LevelWarn),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			c.Logger.Error("admin listener failed", slog.String("address", c.Listen), slog.Any("error", err))
		}
	}()
	return s, nil
}

// Addr is the address that it listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close ends it: what is under way may end while ctx lasts.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	s.grpc.Stop()
	<-s.done
	return err
}

// routes are the pages. There is no /debug/pprof/cmdline: a command line may have secrets.
func (s *Server) routes() http.Handler {
	pages := http.NewServeMux()
	pages.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	pages.HandleFunc("GET /readyz", s.ready)
	if s.config.Metrics != nil {
		pages.Handle("GET /metrics", s.config.Metrics)
	}
	for _, name := range []string{"allocs", "block", "goroutine", "heap", "mutex", "threadcreate"} {
		pages.Handle("GET /debug/pprof/"+name, pprof.Handler(name))
	}
	pages.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	pages.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	pages.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	pages.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, index) })
	return pages
}

// index names what there is.
const index = `/healthz
/readyz
/metrics
/debug/pprof/{allocs,block,goroutine,heap,mutex,threadcreate,profile,trace}
gRPC: grpc.channelz.v1.Channelz`

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if s.config.Ready != nil {
		if err := s.config.Ready(); err != nil {
			say(w, http.StatusServiceUnavailable, err.Error())
			return
		}
	}
	say(w, http.StatusOK, "ready")
}

func say(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // it fails only when nobody listens any more
}

// guard turns away what a web page may have sent, and hands gRPC to its server.
func (s *Server) guard(next http.Handler) http.Handler {
	unix := s.listener.Addr().Network() == "unix"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		switch {
		case r.Header.Get("Origin") != "":
			say(w, http.StatusForbidden, "requests from web pages are not allowed")
		case !unix && !s.config.Wide && !loopback.Host(host):
			say(w, http.StatusForbidden, "the server must be called localhost, 127.0.0.1 or [::1]")
		case r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
			s.grpc.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
