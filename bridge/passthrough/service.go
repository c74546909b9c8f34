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
// RunShell waits for the output of its command in the same way (shell.go). It starts a goroutine for each command, and
// has a channel for each session in which a command has run. A Service has no other lock or goroutine.
package passthrough

import (
	"context"
	"log/slog"

	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/manage"
	"github.com/copilot-grpc/copilot-grpc/bridge/prompt"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota/admission"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Config has the parts that a service uses.
type Config struct {
	Sessions   *sessions.Store
	Opener     *manage.Sessions
	Sender     *prompt.Service
	Admission  *admission.Controller
	Tenants    *tenancy.Tenants
	Runtimes   *fleet.Fleet
	Codec      *wire.Codec
	Operations *idempotency.Runner
	Shutdown   *shutdown.Coordinator
	Log        *slog.Logger
	// Raw switches RawService on. SingleClient says that one program alone uses the CLI's processes.
	Raw, SingleClient bool
}

// Service serves the CLI's methods. It is safe for concurrent use.
type Service struct {
	cfg Config
	// parked counts the calls that wait in the CLI.
	parked quota.Gauge
	shells shells
}

// New returns a service.
func New(c Config) *Service {
	return &Service{cfg: c, shells: shells{shutdown: c.Shutdown, log: c.Log}}
}

// Forget removes what the service has of a session that leaves memory.
func (svc *Service) Forget(key string) { svc.shells.starts.Delete(key) }

// profile reads the profile that the caller of a method asks for.
func (svc *Service) profile(ctx context.Context, m *bridgev1.RuntimeProfile) (runtime.Profile, error) {
	return svc.cfg.Tenants.ReadProfile(ctx, m, "runtime_profile", "")
}

// runtime returns the runtime in whose home the session of a call is; without a session the one of
// the call's profile, or of the tenant's default.
func (svc *Service) runtime(ctx context.Context, c *call) (*fleet.Runtime, error) {
	p := svc.cfg.Tenants.CallerProfile(ctx)
	switch {
	case c.id != "":
		var err error
		if p, err = svc.cfg.Opener.Home(ctx, c.id, nil); err != nil {
			return nil, err
		}
	case c.profile != nil:
		p = *c.profile
	}
	return svc.cfg.Runtimes.First(ctx, p)
}

// forget removes a session that the CLI has deleted.
func (svc *Service) forget(s *session.Session) {
	if e := svc.cfg.Sessions.EntryOf(s); e != nil {
		svc.cfg.Sessions.Remove(e)
	}
}
