// Package rpc serves copilot.bridge.v1 and copilot.cli.v1, a file for each service. It moves
// requests, replies and frames between gRPC and the backends that it declares; *bridge.Bridge is
// all of them. Backends check requests and return the domain errors of package fault, which
// package status turns into statuses.
//
// A service embeds its backend: rpcs whose form is the same on both sides have no method here.
// The package has no state of its own. A call of Attach has one goroutine, which receives its
// frames and ends with its stream.
package rpc

import "google.golang.org/grpc"

// Service is a service that can be registered.
type Service interface {
	// Register makes r serve the service.
	Register(r grpc.ServiceRegistrar)
}

// Backend serves all rpcs. A is what its Attach returns.
type Backend[A Attachment] interface {
	SessionBackend
	EventBackend
	CallbackBackend[A]
	RuntimeBackend
	RawBackend
	SurfaceBackend
}

// Services returns all services of a backend. internal adds the methods of copilot.cli.v1 that
// the CLI marks as internal.
func Services[A Attachment](b Backend[A], internal bool) []Service {
	return []Service{NewSession(b), NewEvent(b), NewCallback(b), NewRuntime(b), NewRaw(b), NewSurface(b, internal)}
}
