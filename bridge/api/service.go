// Package api serves the calls that create, resume, list, configure and end sessions, a file for
// each group of rpcs. The calls of other packages that open sessions (participants, runs,
// copilot.cli.v1) use its Create, Resume, Insert and Reopen.
//
// A Service has no lock and no goroutine. Detached requests run on goroutines of the
// operation.Runner.
package api

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/operation"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Runtimes has the CLI processes and the profiles of sessions.
type Runtimes interface {
	// ProfileNow returns a session's profile as the policy has it now.
	ProfileNow(*sessions.Entry) (runtime.Profile, error)
	// SetProfile gives a session a profile; undo restores the previous one.
	SetProfile(*sessions.Entry, runtime.Profile) (undo func())
	// Reprofile gives a session that is resumed the profile that its caller asks for; undo restores
	// the previous one. It refuses another runtime for a session that is loaded.
	Reprofile(
		ctx context.Context, e *sessions.Entry, m *bridgev1.RuntimeProfile, join *session.Joining, at string,
	) (undo func(), err error)
	// Homes returns a profile for each home of the caller's tenant that is in use, its default first.
	Homes(ctx context.Context) []runtime.Profile
	// Call calls a method of a runtime of a profile and reads its result.
	Call(ctx context.Context, p runtime.Profile, method string, params jsonobj.Object, into any) error
}

// Admission limits the sessions of a tenant.
type Admission interface {
	// Session reserves room for one more session until release is called.
	Session(tenant string) (release func(), err error)
}

// Watchers receive the changes for WatchSessions.
type Watchers interface {
	// Deleted publishes that a session was deleted; e is nil unless the bridge has the session.
	Deleted(e *sessions.Entry, tenant, id string)
}

// Config has the parts that a service uses.
type Config struct {
	Store      *sessions.Store
	Parser     *request.Parser
	Tenants    *tenancy.Tenants
	Runtimes   Runtimes
	Admission  Admission
	Watchers   Watchers
	Operations *operation.Runner
	Shutdown   *shutdown.Coordinator
	Codec      *wire.Codec
	Audit      audit.Sink // not nil
}

// Service serves the calls. It is safe for concurrent use.
type Service struct {
	store      *sessions.Store
	parser     *request.Parser
	tenants    *tenancy.Tenants
	runtimes   Runtimes
	admission  Admission
	watchers   Watchers
	operations *operation.Runner
	shutdown   *shutdown.Coordinator
	codec      *wire.Codec
	audit      audit.Sink
}

// New returns a service.
func New(c Config) *Service {
	return &Service{
		store: c.Store, parser: c.Parser, tenants: c.Tenants, runtimes: c.Runtimes, admission: c.Admission,
		watchers: c.Watchers, operations: c.Operations, shutdown: c.Shutdown, codec: c.Codec, audit: c.Audit,
	}
}
