// Package rpc serves copilot.bridge.v1 and copilot.cli.v1, with a file for each service. It passes requests, replies
// and frames between gRPC and the backends that it declares; bridge.Services has all of them. Backends validate
// requests and return the domain errors of package fault, which package status converts to statuses.
//
// A service embeds its backends: rpcs with the same form on both sides have no method here. The package has no state.
// A call of Attach has one goroutine, which receives its frames and ends with its stream.
package rpc

import "google.golang.org/grpc"

// Service is a gRPC service that can be registered.
type Service interface {
	Register(r grpc.ServiceRegistrar)
}

// Backends has the backends of all services. A is the result of Participants.Attach.
type Backends[A Attachment] struct {
	Sessions     SessionBackend
	Turns        TurnBackend
	Shares       ShareBackend
	Transfers    TransferBackend
	Events       EventBackend
	Watch        WatchBackend
	Callbacks    CallbackBackend
	Participants ParticipantBackend[A]
	Runtimes     RuntimeBackend
	// WebLinks is nil without a listener for browsers.
	WebLinks WebLinkBackend
	// Nodes is nil for a server that is no replica of a cluster.
	Nodes NodeBackend
	CLI   CLIBackend
}

// Services returns all services. internal includes the methods of copilot.cli.v1 that the CLI marks as internal.
func Services[A Attachment](b Backends[A], internal bool) []Service {
	return []Service{
		NewSession(b.Sessions, b.Turns, b.Events, b.Shares, b.Transfers), NewEvent(b.Events, b.Watch),
		NewCallback(b.Callbacks, b.Participants), NewRuntime(b.Runtimes, b.WebLinks, b.Nodes), NewRaw(b.CLI),
		NewSurface(b.CLI, internal),
	}
}

// Register registers all services.
func Register[A Attachment](r grpc.ServiceRegistrar, b Backends[A], internal bool) {
	for _, service := range Services(b, internal) {
		service.Register(r)
	}
}
