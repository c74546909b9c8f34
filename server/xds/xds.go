//go:build xds

package xds

import (
	"cmp"
	"errors"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	xdscreds "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/xds"
)

// Built reports that this program has xDS.
const Built = true

// errNotServing is the reason if gRPC has none.
var errNotServing = errors.New("the control plane has no configuration for it")

// NewServer returns a server that asks the control plane of GRPC_XDS_BOOTSTRAP or GRPC_XDS_BOOTSTRAP_CONFIG about each
// of its listeners. Until there is an answer, a listener closes each connection.
func NewServer(changed Changed, options ...grpc.ServerOption) (Server, error) {
	modes := xds.ServingModeCallback(func(address net.Addr, change xds.ServingModeChangeArgs) {
		if change.Mode == connectivity.ServingModeServing {
			changed(address, nil)
			return
		}
		changed(address, cmp.Or(change.Err, errNotServing))
	})
	return xds.NewGRPCServer(append([]grpc.ServerOption{modes}, options...)...)
}

// Credentials returns the credentials that the control plane configures, and fallback where it configures none.
func Credentials(fallback credentials.TransportCredentials) (credentials.TransportCredentials, error) {
	return xdscreds.NewServerCredentials(xdscreds.ServerOptions{FallbackCreds: fallback})
}
