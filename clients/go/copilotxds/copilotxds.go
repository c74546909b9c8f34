// Package copilotxds lets [copilot.Dial] take targets like "xds:///copilot": a control plane decides where the servers
// are, how calls are routed, and which certificates are used. Import it for that effect:
//
//	import _ "github.com/copilot-grpc/copilot-grpc/clients/go/copilotxds"
//
// gRPC reads the address of the control plane from the bootstrap file that GRPC_XDS_BOOTSTRAP names. If the control
// plane chooses no certificates for a cluster, the options of Dial set TLS. The package makes a program 5.5 MB larger.
package copilotxds

import (
	"google.golang.org/grpc/credentials"
	xdscreds "google.golang.org/grpc/credentials/xds"
	_ "google.golang.org/grpc/xds" // resolves the targets

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/transport"
)

func init() {
	transport.XDSCredentials = func(fallback credentials.TransportCredentials) (credentials.TransportCredentials, error) {
		return xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: fallback})
	}
}
