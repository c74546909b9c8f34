// Package manage serves the calls about sessions that are neither prompts, streams nor callbacks, and those about CLI
// processes, a file for each group of rpcs. Sessions creates, resumes, lists, configures and ends sessions; the calls of
// other packages that open sessions (participants, runs, copilot.cli.v1) use it. Shares offers sessions to other tenants.
// Runtimes serves RuntimeService.
//
// None of these has a lock, but for that of Warnings, or a goroutine. Detached requests run on goroutines of the
// idempotency.Runner.
package manage

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota/admission"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
)

// SessionsConfig has the parts that Sessions uses.
type SessionsConfig struct {
	Store      *sessions.Store
	Parser     *request.Parser
	Tenants    *tenancy.Tenants
	Runtimes   *fleet.Fleet
	Admission  *admission.Controller
	Watchers   *stream.SessionWatch
	Operations *idempotency.Runner
	Shutdown   *shutdown.Coordinator
	Codec      *wire.Codec
	Audit      audit.Sink // not nil
}

// Sessions serves the calls of SessionService that send no prompt. It is safe for concurrent use.
type Sessions struct{ cfg SessionsConfig }

// NewSessions returns a Sessions.
func NewSessions(c SessionsConfig) *Sessions { return &Sessions{cfg: c} }
