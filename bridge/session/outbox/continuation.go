package outbox

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// AddContinuation stores a small prompt of the bridge itself that the CLI is to receive before those that are owed, with its
// place among them: a process that is killed meanwhile leaves both or none. A full outbox returns LIMIT_EXCEEDED.
func (b *Outbox) AddContinuation(p Prompt, before journal.Position) (n uint64, err error) {
	e := &Entry{Before: before, GivenAt: p.AskedAt, Owed: true, prompt: p, size: len(p.Params)}
	if e.line, err = json.Marshal(p); err != nil {
		return 0, err
	}
	b.mu.Lock()
	err = b.insert(e)
	b.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if err = b.Flush(); errors.Is(err, backend.ErrStale) {
		b.Finish(e.N)
		return 0, moved(err)
	}
	return e.N, nil // if the disk fails, it is in memory until a later flush
}

// Continues reports whether the outbox has a continuation.
func (b *Outbox) Continues() bool {
	return slices.ContainsFunc(b.Entries(), func(e Entry) bool { return e.prompt.Continues > 0 })
}
