// Package audit is the record of who did what: who created, shared and ended sessions, who
// allowed which tool, who used the host, and whose calls were refused. Entries hold names and
// words of fixed vocabularies, never prompts, arguments or secrets.
package audit

import (
	"context"
	"time"
)

// Sink takes entries. It is safe for concurrent use.
type Sink interface {
	// Record takes an entry about the call that ctx belongs to; package caller has the call's
	// caller. It must not block: it is called on the way of calls and callbacks.
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

// Bridge is the name of the caller where the bridge itself decided.
const Bridge = "bridge"

// Entry is something that was done. Empty members are left out.
type Entry struct {
	// At is when; if it is zero, now. The lines are in the order in which things were over.
	At time.Time
	// Action is what: "session.create", "session.resume", "session.delete", "session.disconnect",
	// "session.share", "session.unshare", "session.share_accept", "session.share_decline",
	// "callback.answer", "callback.default", "call.host", "call.refused".
	Action string
	// Outcome is what came of it; Reason says why not, as ErrorInfo does.
	Outcome, Reason string
	// Session is the session's id, Owner the tenant that it belongs to where that is not the
	// caller's.
	Session, Owner string
	// Method is the rpc.
	Method string
	// With is the tenant that a session is shared with, Access what for.
	With, Access string
	// Callback is its id, Kind its kind, Subject what it is about: a tool's name, a
	// permission's kind, a hook's type. Decision is what was decided, Participant by whom.
	Callback, Kind, Subject, Decision, Participant string
}
