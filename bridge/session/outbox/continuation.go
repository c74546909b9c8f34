package outbox

import (
	"encoding/json"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// AddContinuation stores a prompt of the bridge itself that the CLI is to receive before those that are owed. A
// full outbox returns LIMIT_EXCEEDED.
func (b *Box) AddContinuation(p Prompt, before journal.Position) (n uint64, err error) {
	e := newEntry(p, before)
	e.Owed = true
	n, _, err = b.add(e, func(params json.RawMessage) (json.RawMessage, []string) { return params, nil })
	return n, err
}

// Continues reports whether the outbox has a continuation.
func (b *Box) Continues() bool {
	return slices.ContainsFunc(b.Entries(), func(e Entry) bool { return e.prompt.Continues > 0 })
}
