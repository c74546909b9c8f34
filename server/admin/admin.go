// Package admin serves operators on a separate address: liveness, readiness, metrics, connections (channelz) and
// profiles.
//
// On a unix socket the file's mode controls access. Every process of the machine can reach a TCP address, including
// the shells of sandboxed tenants, so all pages except /healthz and /readyz require a token.
//
// Server has one goroutine, which serves; Close ends it.
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
	// headerTimeout bounds the time to receive a request's headers.
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	// MinToken is the minimum length of Config.Token.
	MinToken = 16
)

// Config configures the admin server.
type Config struct {
	// Listen is the address: "unix:PATH" or "HOST:PORT".
	Listen string
	// Wide permits an address that other machines can reach.
	Wide bool
	// Token is the bearer token that requests over TCP carry, at least MinToken characters.
	// Required with a TCP address; not used on a unix socket.
	Token string
	// Metrics serves the metrics; nil disables the page.
	Metrics http.Handler
	// Ready returns why the server should get no calls now; nil if it should.
	Ready func() error
	// Logger receives errors. The default is slog.Default().
	Logger *slog.Logger
}

// Check validates an address and its token.
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
		return fmt.Errorf("admin address %q is accessible to every process of this machine: "+
			"set admin_token, or use a unix socket (unix:PATH)", address)
	case len(token) < MinToken:
		return fmt.Errorf("admin token has %d characters, fewer than %d", len(token), MinToken)
	}
	return nil
}

// Server is the admin listener and what it serves. Close ends it.
type Server struct {
	config   Config
	listener net.Listener
	http     *http.Server
	grpc     *grpc.Server
	done     chan struct{}
}

// New listens on the address and serves. The caller must Close the server.
func New(ctx context.Context, c Config) (*Server, error) {
	if err := Check(c.Listen, c.Token, c.Wide); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	l, err := server.Listen(ctx, c.Listen)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
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

// Addr returns the listening address.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close stops the server. Requests in progress may finish until ctx ends.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	s.grpc.Stop()
	<-s.done
	return err
}

// routes returns the pages. There is no /debug/pprof/cmdline, because a command line may contain secrets.
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

// index lists the pages.
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
	_, _ = io.WriteString(w, text+"\n") // it fails only if the client is gone
}

// guard refuses requests from web pages and requests without the token, and passes gRPC to its server.
func (s *Server) guard(next http.Handler) http.Handler {
	unix := s.listener.Addr().Network() == "unix"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case fromWebPage(r.Header):
			say(w, http.StatusForbidden, "requests from web pages are not allowed")
		case !unix && !s.config.Wide && !loopback.Authority(r.Host):
			say(w, http.StatusForbidden, "the host name must be localhost, 127.0.0.1 or [::1]")
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

// openPages need no token, because probes of a service manager have none. They return one word.
var openPages = map[string]bool{"/healthz": true, "/readyz": true}

// fromWebPage reports whether a browser may have sent the request for a page of another origin. Browsers omit Origin
// in many requests, such as those for images and scripts.
func fromWebPage(header http.Header) bool {
	site := header.Get("Sec-Fetch-Site")
	return header.Get("Origin") != "" || site != "" && site != "none" && site != "same-origin"
}

// authorized compares digests in constant time.
func (s *Server) authorized(header string) bool {
	scheme, token, _ := strings.Cut(header, " ")
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(s.config.Token))
	return strings.EqualFold(scheme, "bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}
