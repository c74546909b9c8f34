// Package admin serves the operators' pages on an address that callers do not use: liveness,
// readiness, metrics, connections (channelz) and profiles.
//
// On a unix socket the file's mode decides who may look. On TCP every process of the machine
// reaches the address, the shells of sandboxed tenants included, so that all pages but
// /healthz and /readyz ask for a token.
package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
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
	// MinToken is the least length of Config.Token.
	MinToken = 16
)

// Config says what to serve.
type Config struct {
	// Listen is the address: "unix:PATH" or "HOST:PORT".
	Listen string
	// Wide allows an address that other machines reach.
	Wide bool
	// Token is the bearer token that requests over TCP carry, at least MinToken characters.
	// Required with a TCP address; not used on a unix socket.
	Token string
	// Metrics is the page of the figures; nil for none.
	Metrics http.Handler
	// Ready says why the server should get no calls now; nil if it should.
	Ready func() error
	// Logger takes what goes wrong. Default: slog.Default().
	Logger *slog.Logger
}

// Check reports what is wrong with an address and its token.
func Check(address, token string, wide bool) error {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		if path == "" {
			return fmt.Errorf("admin address %q has no path", address)
		}
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return fmt.Errorf("admin address %q is neither unix:PATH nor HOST:PORT: %w", address, err)
	case !wide && !loopback.Host(host):
		return fmt.Errorf("admin address %q is not on the loopback interface: set --admin-wide to allow it", address)
	case token == "":
		return fmt.Errorf("admin address %q is open to every process of this machine: "+
			"set admin_token, or use a unix socket (unix:PATH)", address)
	case len(token) < MinToken:
		return fmt.Errorf("admin token has %d characters, fewer than %d", len(token), MinToken)
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
	if err := Check(c.Listen, c.Token, c.Wide); err != nil {
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

// guard refuses requests that a web page may have sent and requests without the token, and
// hands gRPC to its server.
func (s *Server) guard(next http.Handler) http.Handler {
	unix := s.listener.Addr().Network() == "unix"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		switch {
		case fromWebPage(r.Header):
			say(w, http.StatusForbidden, "requests from web pages are not allowed")
		case !unix && !s.config.Wide && !loopback.Host(host):
			say(w, http.StatusForbidden, "the server must be called localhost, 127.0.0.1 or [::1]")
		case !unix && !openPages[r.URL.Path] && !s.authorized(r.Header.Get("Authorization")):
			w.Header().Set("WWW-Authenticate", "Bearer")
			say(w, http.StatusUnauthorized, "send the admin token: Authorization: Bearer TOKEN")
		case r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
			s.grpc.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// openPages need no token: probes of a service manager have none, and learn one word.
var openPages = map[string]bool{"/healthz": true, "/readyz": true}

// fromWebPage reports whether a browser sent the request for a page of another origin.
// Browsers leave Origin out of many requests, such as those for images and scripts.
func fromWebPage(header http.Header) bool {
	site := header.Get("Sec-Fetch-Site")
	return header.Get("Origin") != "" || site != "" && site != "none" && site != "same-origin"
}

// authorized compares digests, so that the time does not depend on the token.
func (s *Server) authorized(header string) bool {
	scheme, token, _ := strings.Cut(header, " ")
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(s.config.Token))
	return strings.EqualFold(scheme, "bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}
