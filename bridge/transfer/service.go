// Package transfer carries single sessions between installations: ExportSession writes a session archive, and
// ImportSession makes a session of one. Package archive has the format of the file; this package has its parts:
//
//	session.json     the configuration without secrets, and what describes the session (state)
//	journal.jsonl    the durable events of the journal, a line of JSON for each (entry)
//	history/…        the CLI's folder of the session: events.jsonl and the files that it continues (package record),
//	                 plan.md, checkpoints/, files/, research/
//
// An archive may come from an attacker. Three rules keep it harmless. All files are handled below an os.Root. The
// configuration takes the way of a CreateSessionRequest, with the server's check of fields. And the CLI's record of
// the events is written anew with the types that make up a conversation, because the CLI restores approvals, modes,
// schedules and the working directory from its record.
//
// A Service has no lock but that of its gauge. Calls run on the goroutines of their callers.
package transfer

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	"github.com/copilot-grpc/copilot-grpc/bridge/manage"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota/admission"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
)

// Limits of an archive. An archive that a server writes can be read by every other one.
const (
	maxBytes = 256 << 20 // of all parts together
	maxParts = 10_000
	maxDepth = 8
	// maxLine bounds an event in a part with lines of JSON.
	maxLine = 32 << 20
	// maxState bounds session.json.
	maxState = 4 << 20
	// maxTransfers bounds the exports and imports of a tenant that run at the same time.
	maxTransfers = 4
	// chunkBytes is the size of a message of an export.
	chunkBytes = 256 << 10
)

var limits = archive.Limits{Bytes: maxBytes, Parts: maxParts, Depth: maxDepth}

// Config has the parts that a service uses.
type Config struct {
	Store     *sessions.Store
	Sessions  *manage.Sessions
	Runtimes  *fleet.Fleet
	Tenants   *tenancy.Tenants
	Parser    *request.Parser
	Codec     *wire.Codec
	Shutdown  *shutdown.Coordinator
	Admission *admission.Controller
	Audit     audit.Sink // not nil
	// Log receives the causes of failures that may name paths of the server.
	Log *slog.Logger
}

// Service serves the calls. It is safe for concurrent use.
type Service struct {
	cfg     Config
	running quota.Gauge
}

// New returns a service.
func New(c Config) *Service { return &Service{cfg: c} }

// begin counts a transfer of a tenant until release is called. It returns LIMIT_EXCEEDED if too many run.
func (svc *Service) begin(tenant string) (release func(), err error) {
	return svc.running.Take(tenant, quota.Limit{Name: "transfers", Tenant: maxTransfers, Fixed: true})
}

// checkPlace returns FEATURE_DISABLED if the CLI's files are not on this machine.
func (svc *Service) checkPlace() error {
	if svc.cfg.Tenants.Dialed {
		return fault.New(fault.FeatureDisabled, "the server has no access to the files of the CLI server (dial)")
	}
	return nil
}

// tooMuch returns LIMIT_EXCEEDED for one of the fixed limits.
func tooMuch(limit, format string, args ...any) *fault.Error {
	return fault.New(fault.LimitExceeded, "%s", fmt.Sprintf(format, args...)).With("limit", limit)
}

// done records a transfer in the audit log.
func (svc *Service) done(ctx context.Context, action, id string, err error) {
	e := audit.Entry{Action: action, Outcome: audit.Done, Session: id}
	if err != nil {
		e.Outcome, e.Reason = audit.Failed, fault.ReasonOf(err).String()
	}
	svc.cfg.Audit.Record(ctx, e)
}
