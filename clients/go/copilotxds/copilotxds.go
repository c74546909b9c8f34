// Package copilotxds lets [copilot.Dial] take targets like "xds:///copilot": a control plane says where the servers
// are, how to route calls, and which certificates to use. Import it for that effect:
//
//	import _ "github.com/copilot-grpc/copilot-grpc/clients/go/copilotxds"
//
// gRPC reads the address of the control plane from the bootstrap file of GRPC_XDS_BOOTSTRAP. For a cluster without
// certificates of the control plane, the options of Dial apply. The package makes a program about 6 MB larger.
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
