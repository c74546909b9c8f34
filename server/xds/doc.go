// Package xds makes gRPC servers for which a control plane decides, by xDS, which connections they take and with which
// TLS. Only programs that are built with the tag xds contain it: it makes them 5.5 MB larger.
package xds

import (
	"errors"
	"net"

	"google.golang.org/grpc"
)

// ErrNotBuilt reports a program without xDS.
var ErrNotBuilt = errors.New("this program was built without xDS: build it with -tags xds")

// Server is a gRPC server for TCP listeners.
type Server interface {
	grpc.ServiceRegistrar
	GetServiceInfo() map[string]grpc.ServiceInfo
	Serve(l net.Listener) error
	GracefulStop()
	Stop()
}

// Changed is called with a nil reason when a listener begins to take connections, and with the reason when it cannot.
// It must not block.
type Changed func(address net.Addr, reason error)
