package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/copilot-grpc/copilot-grpc/server/account"
	"github.com/copilot-grpc/copilot-grpc/server/login"
	"github.com/copilot-grpc/copilot-grpc/server/web"
)

// Timeouts of HTTP connections. Bodies have a timeout of their own, and replies none, because streams may last.
const (
	webHeaderTimeout = 10 * time.Second
	webIdleTimeout   = 2 * time.Minute
)

// site is the listener for browsers. The methods of a nil site do nothing.
type site struct {
	listener net.Listener
	http     *http.Server
	handler  *web.Handler
	secure   bool
}

// newSite opens the listener for browsers. Its calls go through the same layers as those of gRPC, and its connections
// count like others.
func (s *Server) newSite(ctx context.Context, c *Web) (*site, error) {
	s.gate.logins = c.Logins
	if s.gate.logins == nil {
		var err error
		if s.gate.logins, err = login.Open(login.Config{}); err != nil {
			return nil, err
		}
	}
	handler, err := web.New(web.Config{
		Register: s.register, Unary: s.chain.unary, Stream: s.chain.stream, Unreadable: s.chain.unreadable,
		Enter: s.greetWeb, Stats: s.spanned(), MaxRecvBytes: s.config.MaxRecvBytes,
		Origins: c.Origins, AnyHost: s.certificates != nil && s.config.Policy != nil, Pages: c.Pages,
		Auth: login.NewHandler(s.gate.logins, (*authority)(s), s.config.Audit, s.config.Logger),
	})
	if err != nil {
		return nil, err
	}
	l, err := Listen(ctx, c.Listen)
	if err != nil {
		return nil, err
	}
	s.gate.logins.SetURL(s.urlOf(c, l.Addr()))
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	on := &site{listener: listener{l, s.connections}, handler: handler, secure: s.certificates != nil}
	on.http = &http.Server{
		Handler: handler, Protocols: &protocols, MaxHeaderBytes: maxHeaderBytes, ReadHeaderTimeout: webHeaderTimeout,
		IdleTimeout: webIdleTimeout, ErrorLog: slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: int(s.config.MaxConcurrentStreams), SendPingTimeout: keepaliveTime,
			PingTimeout: keepaliveTimeout,
		},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	if on.secure {
		on.http.TLSConfig = s.certificates.configFor("h2", "http/1.1")
	}
	return on, nil
}

// serve accepts connections until the site is shut down or closed.
func (w *site) serve(l net.Listener) error {
	if w.secure {
		return w.http.ServeTLS(l, "", "")
	}
	return w.http.Serve(l)
}

// shutdown waits for the calls in progress, without a limit.
func (w *site) shutdown() {
	if w == nil {
		return
	}
	_ = w.http.Shutdown(context.Background()) // errors of closing listeners
	w.handler.Wait()
}

// close cancels all calls and waits for their handlers.
func (w *site) close() {
	if w == nil {
		return
	}
	_ = w.listener.Close() // before serve, the HTTP server does not know it
	_ = w.http.Close()
	w.handler.Wait()
}

// connKey is the context key of a request's connection.
type connKey struct{}

// greetWeb returns the context of a request with its peer, and the account of its memory. It authenticates the
// connection before the body arrives.
func (s *Server) greetWeb(ctx context.Context, r *http.Request) (context.Context, *account.Account, error) {
	ctx, on := s.withPeer(ctx, r)
	ctx = s.withLogin(ctx, r)
	if on == nil {
		return ctx, nil, nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	a := account.New(s.gate.payer(ctx, on, md))
	return ctx, a, a.Open(sizeOf(md) + callOverhead)
}

// WebAddr returns the address of the listener for browsers; nil if there is none.
func (s *Server) WebAddr() net.Addr {
	if s.web == nil {
		return nil
	}
	return s.web.listener.Addr()
}

// withProtocols returns a TLS configuration that negotiates other protocols.
func withProtocols(c *tls.Config, protocols []string) *tls.Config {
	if slices.Equal(c.NextProtos, protocols) {
		return c
	}
	c = c.Clone()
	c.NextProtos = protocols
	return c
}
