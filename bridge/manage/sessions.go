// Package manage serves the calls about sessions that are neither prompts, streams nor callbacks, and those about CLI
// processes, a file for each group of rpcs. Sessions creates, resumes, lists, configures and ends sessions; the calls of
// other packages that open sessions (participants, runs, copilot.cli.v1) use it. Shares offers sessions to other tenants.
// Runtimes serves RuntimeService.
//
// None of these has a lock or a goroutine. Detached requests run on goroutines of the idempotency.Runner.
package manage

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Processes has the CLI processes and the profiles of sessions.
type Processes interface {
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

// Deletions receive the changes for WatchSessions.
type Deletions interface {
	// Deleted publishes that a session was deleted; e is nil unless the bridge has the session.
	Deleted(e *sessions.Entry, tenant, id string)
}

// SessionsConfig has the parts that Sessions uses.
type SessionsConfig struct {
	Store      *sessions.Store
	Parser     *request.Parser
	Tenants    *tenancy.Tenants
	Runtimes   Processes
	Admission  Admission
	Watchers   Deletions
	Operations *idempotency.Runner
	Shutdown   *shutdown.Coordinator
	Codec      *wire.Codec
	Audit      audit.Sink // not nil
}

// Sessions serves the calls of SessionService that send no prompt. It is safe for concurrent use.
type Sessions struct {
	store      *sessions.Store
	parser     *request.Parser
	tenants    *tenancy.Tenants
	runtimes   Processes
	admission  Admission
	watchers   Deletions
	operations *idempotency.Runner
	shutdown   *shutdown.Coordinator
	codec      *wire.Codec
	audit      audit.Sink
}

// NewSessions returns a Sessions.
func NewSessions(c SessionsConfig) *Sessions {
	return &Sessions{
		store: c.Store, parser: c.Parser, tenants: c.Tenants, runtimes: c.Runtimes, admission: c.Admission,
		watchers: c.Watchers, operations: c.Operations, shutdown: c.Shutdown, codec: c.Codec, audit: c.Audit,
	}
}
