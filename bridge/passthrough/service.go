// Package passthrough serves the methods of the CLI: copilot.cli.v1 and RawService. A call goes to
// the runtime of its session, or of a profile, unless a row of the table overrides says what the
// bridge does with the method. docs/methods.md shows the table.
//
// One path serves every method. It translates the request by the method's descriptor, looks the method up in overrides,
// and without a row forwards the call. A row refuses the method with a reason, or names the function that implements
// it, so that a prompt or an answer takes effect in the same way whichever API it comes by.
//
// The bridge's stricter checks do not apply to exact callers (copilot-fidelity: exact). Their errors are the JSON-RPC
// errors that the CLI returned or would return (session.Exactly), and a call about a session that is not open goes to
// the CLI, whose error depends on the method. File exact.go implements some refused methods for them, most only if the
// bridge serves one program (Config.SingleClient).
//
// A call that waits for events waits for the journal and does not occupy the CLI. Where only the CLI can wait, at most
// 32 calls of a tenant wait there.
//
// A Service has no lock and starts no goroutine.
package passthrough

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/admission"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/prompt"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shell"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Runtime is a CLI process.
type Runtime interface {
	Call(ctx context.Context, method string, params []byte, opts ...rpcconn.CallOption) (json.RawMessage, error)
}

// Opener opens and ends sessions.
type Opener interface {
	// CheckNew refuses the id of a session that exists in the bridge or in the history of a profile.
	CheckNew(ctx context.Context, p runtime.Profile, id string) error
	// Insert and Reopen open a session in a runtime of the caller's tenant.
	Insert(ctx context.Context, id string, o session.Opening) (*session.Session, error)
	Reopen(ctx context.Context, id string, o session.Opening) (*session.Session, error)
	// DisconnectSession ends the use of a session unless other participants use it.
	DisconnectSession(context.Context, *bridgev1.DisconnectSessionRequest) (*bridgev1.DisconnectSessionResponse, error)
	// DeleteSession deletes a session.
	DeleteSession(context.Context, *bridgev1.DeleteSessionRequest) (*bridgev1.DeleteSessionResponse, error)
	// Home returns the profile in whose home the session of an id is; nil for m is the session's own.
	Home(ctx context.Context, id string, m *bridgev1.RuntimeProfile) (runtime.Profile, error)
}

// Config has the parts that a service uses.
type Config struct {
	Sessions  *sessions.Store
	Opener    Opener
	Sender    *prompt.Service
	Admission *admission.Controller
	Tenants   *tenancy.Tenants
	// Runtime returns a runtime of a profile.
	Runtime    func(ctx context.Context, p runtime.Profile) (Runtime, error)
	Codec      *wire.Codec
	Operations *idempotency.Runner
	Shutdown   *shutdown.Coordinator
	Shells     *shell.Runner
	// Raw switches RawService on. SingleClient says that one program alone uses the CLI's processes.
	Raw, SingleClient bool
}

// Service serves the CLI's methods. It is safe for concurrent use.
type Service struct {
	sessions          *sessions.Store
	opener            Opener
	sender            *prompt.Service
	admission         *admission.Controller
	tenants           *tenancy.Tenants
	runtimeOf         func(ctx context.Context, p runtime.Profile) (Runtime, error)
	codec             *wire.Codec
	operations        *idempotency.Runner
	shutdown          *shutdown.Coordinator
	shells            *shell.Runner
	raw, singleClient bool
	// parked counts the calls that wait in the CLI.
	parked quota.Gauge
}

// New returns a service.
func New(c Config) *Service {
	return &Service{
		sessions: c.Sessions, opener: c.Opener, sender: c.Sender, admission: c.Admission, tenants: c.Tenants,
		runtimeOf: c.Runtime, codec: c.Codec, operations: c.Operations, shutdown: c.Shutdown, shells: c.Shells,
		raw: c.Raw, singleClient: c.SingleClient,
	}
}

// profile reads the profile that the caller of a method asks for.
func (svc *Service) profile(ctx context.Context, m *bridgev1.RuntimeProfile) (runtime.Profile, error) {
	return svc.tenants.ReadProfile(ctx, m, "runtime_profile", "")
}

// runtime returns the runtime in whose home the session of a call is; without a session the one of
// the call's profile, or of the tenant's default.
func (svc *Service) runtime(ctx context.Context, c *call) (Runtime, error) {
	p := svc.tenants.CallerProfile(ctx)
	switch {
	case c.id != "":
		var err error
		if p, err = svc.opener.Home(ctx, c.id, nil); err != nil {
			return nil, err
		}
	case c.profile != nil:
		p = *c.profile
	}
	return svc.runtimeOf(ctx, p)
}

// forget removes a session that the CLI has deleted.
func (svc *Service) forget(s *session.Session) {
	if e := svc.sessions.EntryOf(s); e != nil {
		svc.sessions.Remove(e)
	}
}
