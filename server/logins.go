package server

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"net"
	"net/http"
	"os"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/login"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// loginKey is the context key of the login of a request's cookie.
type loginKey struct{}

func loginOf(ctx context.Context) *identity.Login {
	l, _ := ctx.Value(loginKey{}).(*identity.Login)
	return l
}

// withLogin returns the context of a request with the login of its cookie, if it has one.
func (s *Server) withLogin(ctx context.Context, r *http.Request) context.Context {
	if l := s.gate.logins.Find(login.Cookie(r)); l != nil {
		return context.WithValue(ctx, loginKey{}, l)
	}
	return ctx
}

// createWebLink is the rpc that hands out the caller's identity.
const createWebLink = "/copilot.bridge.v1.RuntimeService/CreateWebLink"

// identifyLogin returns the identity of a login.
func (g *gate) identifyLogin(l *identity.Login, now *policy.Policy) (*identity.Identity, error) {
	switch {
	case now != nil:
		return now.IdentifyLogin(l)
	case l.Identity.Source == identity.Socket,
		l.Identity.Source == identity.ServerToken && l.Digest == hex.EncodeToString(g.token[:]):
		return l.Limit(l.Identity), nil
	}
	return nil, fault.New(fault.Unauthenticated, "the login is no longer valid: log in again")
}

// whileLoggedIn returns a context that ends with the login of a call.
func (g *gate) whileLoggedIn(ctx context.Context, c *call, l *identity.Login) (context.Context, error) {
	ctx, release, held := g.logins.Hold(ctx, l.ID)
	if !held {
		return ctx, errorLoggedOut()
	}
	c.atEnd(func(err error) error {
		if err != nil && context.Cause(ctx) == login.ErrEnded {
			err = errorLoggedOut()
		}
		release()
		return err
	})
	return ctx, nil
}

// errorLoggedOut returns the error for a caller whose login has ended.
func errorLoggedOut() error {
	return fault.Wrap(login.ErrEnded, fault.Unauthenticated, "log in again")
}

// authority authenticates for package login.
type authority Server

// Prove implements login.Authority.
func (a *authority) Prove(ctx context.Context, token, tenant string) (identity.Login, error) {
	g, now := a.gate, a.gate.now()
	sum := sha256.Sum256([]byte(token))
	l := identity.Login{Digest: hex.EncodeToString(sum[:]), Tenant: caller.HostName, Role: caller.Admin}
	if now == nil {
		l.Identity = identity.Identity{Source: identity.ServerToken}
		return l, g.checkToken(token)
	}
	if token == "" {
		return l, fault.New(fault.Unauthenticated, "the token is empty")
	}
	id, err := now.Authenticate(ctx, identity.Proof{Bearer: token})
	if err != nil {
		return l, err
	}
	bound, err := a.Bind(id, tenant)
	if err == nil && id.Source == identity.StaticToken {
		bound.Digest = l.Digest
	}
	return bound, err
}

// Bind implements login.Authority.
func (a *authority) Bind(id *identity.Identity, tenant string) (identity.Login, error) {
	now := a.gate.now()
	if now == nil {
		return identity.Login{}, fault.New(fault.Unauthenticated, "the server has no policy")
	}
	who, err := now.Resolve(id, tenant)
	return identity.Login{Identity: *id, Tenant: login.TenantName(who.Tenant), Role: caller.Admin}, err
}

// Flow implements login.Authority.
func (a *authority) Flow(issuer string) *identity.CodeFlow {
	now := a.gate.now()
	if now == nil {
		return nil
	}
	return now.Flow(issuer)
}

// Caller implements login.Authority.
func (a *authority) Caller(r *http.Request) (*login.Caller, error) {
	s := (*Server)(a)
	ctx, _ := s.withPeer(r.Context(), r)
	ctx = s.withLogin(ctx, r)
	now := a.gate.now()
	id, proof, err := a.gate.identify(ctx, now)
	if err != nil {
		return nil, err
	}
	who, err := a.gate.resolve(ctx, id, proof.Login, now)
	if err != nil {
		return nil, err
	}
	c := &login.Caller{Caller: who, Method: login.MethodToken, Expires: id.Expires}
	switch {
	case proof.Login != nil:
		c.Method = proof.Login.Method
	case id.Source == identity.Certificate:
		c.Method = login.MethodCertificate
	}
	return c, nil
}

// CallerOf implements login.Authority.
func (a *authority) CallerOf(r *http.Request, l *identity.Login) (*login.Caller, error) {
	now := a.gate.now()
	limited := *l
	if limited.Expires.IsZero() { // it is not stored yet
		limited.Expires = l.Identity.Expires
	}
	id, err := a.gate.identifyLogin(&limited, now)
	if err != nil {
		return nil, err
	}
	who, err := a.gate.resolve(r.Context(), id, l, now)
	if err != nil {
		return nil, err
	}
	return &login.Caller{Caller: who, Method: l.Method, Expires: l.Expires}, nil
}

// Methods implements login.Authority.
func (a *authority) Methods() []string {
	methods := []string{login.MethodLink}
	if now := a.gate.now(); now == nil || now.Logins() {
		methods = append(methods, login.MethodToken)
	}
	if a.Flow("") != nil {
		methods = append(methods, login.MethodOIDC)
	}
	return methods
}

// withPeer returns the context of a request with its peer, and its connection, if that is counted.
func (s *Server) withPeer(ctx context.Context, r *http.Request) (context.Context, *connection) {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	var shown credentials.AuthInfo
	if secure, ok := conn.(*tls.Conn); ok {
		shown = credentials.TLSInfo{State: *r.TLS,
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
		conn = secure.NetConn()
	}
	p := &peer.Peer{Addr: conn.RemoteAddr(), LocalAddr: conn.LocalAddr(), AuthInfo: shown}
	on, counted := conn.(*connection)
	if counted {
		p.AuthInfo = handshaken{shown, on, &on.calls}
	}
	return peer.NewContext(ctx, p), on
}

// urlOf returns the URL of the listener for browsers.
func (s *Server) urlOf(c *Web, at net.Addr) string {
	if c.URL != "" {
		return strings.TrimSuffix(c.URL, "/")
	}
	scheme := "http://"
	if s.certificates != nil {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return scheme + at.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return scheme + net.JoinHostPort(host, port)
}
