package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"strings"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/internal/reason"
)

// gate decides who may call. On a unix socket the operating system has decided already:
// only the own user can connect. On TCP every call needs the token, health and
// reflection included.
type gate struct {
	// token is the digest of the token: equal lengths make the comparison's time tell
	// nothing.
	token [sha256.Size]byte
}

func newGate(token string) *gate { return &gate{token: sha256.Sum256([]byte(token))} }

// admit refuses calls that may not be made.
func (g *gate) admit(ctx context.Context, _ *call, next func(context.Context) error) error {
	if p, ok := peer.FromContext(ctx); !ok || p.Addr.Network() != "unix" {
		if err := checkOrigin(ctx); err != nil {
			return err
		}
		if err := g.checkToken(ctx); err != nil {
			return err
		}
	}
	return next(ctx)
}

// checkOrigin refuses what a web page may have sent. A browser lets a page talk to a
// name of its own that it points to the loopback address, so that the name must be one
// that nobody else controls; and no page has business here, whatever it calls the server.
func checkOrigin(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md.Get("origin")) > 0 {
		return fault.New(reason.Forbidden, "calls from web pages are not allowed")
	}
	authority := md.Get(":authority")
	if len(authority) != 1 || !loopback(hostOf(authority[0])) {
		return fault.New(reason.Forbidden, "the server must be called localhost, 127.0.0.1 or [::1], not %q", strings.Join(authority, ","))
	}
	return nil
}

// hostOf returns the host of an authority, which may have a port.
func hostOf(authority string) string {
	if host, _, err := net.SplitHostPort(authority); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(authority, "["), "]")
}

// checkToken refuses calls without the token.
func (g *gate) checkToken(ctx context.Context) error {
	token, err := auth.AuthFromMD(ctx, "bearer")
	if err != nil {
		return fault.New(reason.Unauthenticated, "the call needs the metadata %q with the server's token", "authorization: Bearer TOKEN")
	}
	if sent := sha256.Sum256([]byte(token)); subtle.ConstantTimeCompare(sent[:], g.token[:]) != 1 {
		return fault.New(reason.Unauthenticated, "wrong token")
	}
	return nil
}
