// Package audit defines the audit log's entries: who created, shared and ended sessions, who allowed which tool, who
// used the host, and whose calls were refused. Entries contain names and terms of fixed vocabularies, never prompts,
// arguments or secrets.
//
// There are two sources: a session records changes and decisions, and the server records refused calls and calls that
// affect the host.
package audit

import (
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
)

// Sink receives entries. It is safe for concurrent use.
type Sink interface {
	// Record receives an entry about ctx's call; package caller returns its caller. It must not block, because calls
	// and callbacks wait for it.
	Record(ctx context.Context, e Entry)
}

// Discard is a Sink that drops all entries.
var Discard Sink = discard{}

type discard struct{}

func (discard) Record(context.Context, Entry) {}

// Outcomes of an entry.
const (
	Done    = "done"
	Failed  = "failed"
	Refused = "refused"
)

// Bridge is the name of the caller for what the bridge itself does.
const Bridge = "bridge"

// ByBridge returns ctx for what the bridge itself does to a session of a tenant.
func ByBridge(ctx context.Context, tenant string) context.Context {
	return caller.With(ctx, caller.Caller{Tenant: tenant, Name: Bridge})
}

// Entry describes one action. Empty fields are omitted.
type Entry struct {
	// At is the time; the zero time means now. Entries are written in the order in which the actions ended.
	At time.Time
	// Action is one of "session.create", "session.resume", "session.delete", "session.disconnect", "session.share",
	// "session.unshare", "session.share_accept", "session.share_decline", "session.export", "session.import",
	// "callback.answer", "callback.default", "call.host", "call.permissions", "call.refused", "login", "logout",
	// "runtime.drain", "runtime.undrain", "runtime.recycle", "node.drain", "node.undrain", "session.move".
	Action string
	// Outcome is the result; Reason is the error reason of a failure, as in ErrorInfo.
	Outcome, Reason string
	// Session is the session's id, Owner its tenant if that is not the caller's.
	Session, Owner string
	// Method is the rpc.
	Method string
	// With is the tenant that a session is shared with, Access the access granted.
	With, Access string
	// Callback is its id, Kind its kind, or how a browser logged in, Subject its subject: a tool's name, a permission's
	// kind, a hook's type, a runtime's id. Decision is the decision, Participant the participant that made it.
	Callback, Kind, Subject, Decision, Participant string
}
