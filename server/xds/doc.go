// Package xds makes gRPC servers that a control plane configures by xDS: it says which connections they take, and with
// which TLS. It is part of programs that are built with the tag xds, which makes them about 6 MB larger.
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

// Changed is told whether a listener takes connections: nil if it does, else the reason. It must not block.
type Changed func(address net.Addr, reason error)
