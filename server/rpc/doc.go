// Package rpc serves copilot.bridge.v1 and copilot.cli.v1, with a file for each service. It passes requests, replies
// and frames between gRPC and the backends that it declares; *bridge.Bridge implements all of them. Backends validate
// requests and return the domain errors of package fault, which package status converts to statuses.
//
// A service embeds its backend: rpcs with the same form on both sides have no method here. The package has no state.
// A call of Attach has one goroutine, which receives its frames and ends with its stream.
package rpc

import "google.golang.org/grpc"

// Service is a gRPC service that can be registered.
type Service interface {
	Register(r grpc.ServiceRegistrar)
}

// Backend implements all rpcs. A is the result of its Attach.
type Backend[A Attachment] interface {
	SessionBackend
	EventBackend
	CallbackBackend[A]
	RuntimeBackend
	RawBackend
	SurfaceBackend
}

// Services returns all services of a backend. internal includes the methods of copilot.cli.v1 that the CLI marks as
// internal.
func Services[A Attachment](b Backend[A], internal bool) []Service {
	return []Service{NewSession(b), NewEvent(b), NewCallback(b), NewRuntime(b), NewRaw(b), NewSurface(b, internal)}
}
