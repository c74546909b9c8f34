package transport

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"
)

const xdsScheme = "xds"

// XDSCredentials returns the credentials of "xds:" targets, with those for clusters to which the control plane gives
// none. Package copilotxds sets it when the program begins; it is nil without that package.
var XDSCredentials func(fallback credentials.TransportCredentials) (credentials.TransportCredentials, error)

// CredentialsFor returns the credentials for a target, with those that the options ask for, and the name that these
// expect in the server's certificate; empty for the target's.
func CredentialsFor(target string, creds credentials.TransportCredentials, serverName string) (
	credentials.TransportCredentials, error,
) {
	scheme, _, found := strings.Cut(target, ":")
	switch {
	case !found || !strings.EqualFold(scheme, xdsScheme):
		return creds, nil
	case XDSCredentials != nil:
		return XDSCredentials(named{creds, serverName})
	case resolver.Get(xdsScheme) != nil: // the program has imported gRPC's own package
		return creds, nil
	}
	return nil, errors.New("copilot: xds targets need a program that imports " +
		"github.com/copilot-grpc/copilot-grpc/clients/go/copilotxds")
}

// named are credentials that expect a fixed name in the server's certificate. A channel does not see the name of
// credentials within those of xDS, and with it as authority it would choose other routes.
type named struct {
	credentials.TransportCredentials
	name string
}

// ClientHandshake implements credentials.TransportCredentials.
func (n named) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (
	net.Conn, credentials.AuthInfo, error,
) {
	return n.TransportCredentials.ClientHandshake(ctx, cmp.Or(n.name, authority), conn)
}
