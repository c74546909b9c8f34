package prompt

import (
	"context"
	"slices"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// maxRuns bounds the turns that a repeated Run can still find; each keeps its session's
// journal in memory.
const maxRuns = 256

// runs remembers the turns of Run by message.
type runs struct {
	mu    sync.Mutex
	turns map[string]*startedTurn
	order []string
}

// put remembers a turn, and returns the one that is remembered: an earlier one of the same
// message stays.
func (rs *runs) put(t *startedTurn) *startedTurn {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.turns == nil {
		rs.turns = map[string]*startedTurn{}
	}
	key := t.s.Key() + "/" + t.sent.MessageID
	if earlier := rs.turns[key]; earlier != nil {
		return earlier
	}
	rs.turns[key] = t
	if rs.order = append(rs.order, key); len(rs.order) > maxRuns {
		delete(rs.turns, rs.order[0])
		rs.order = rs.order[1:]
	}
	return t
}

// forget drops the turns of a session that leaves memory.
func (rs *runs) forget(session string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.order = slices.DeleteFunc(rs.order, func(key string) bool {
		of := rs.turns[key].s.Key() == session
		if of {
			delete(rs.turns, key)
		}
		return of
	})
}

func (rs *runs) get(ctx context.Context, sessionID, messageID string) *startedTurn {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.turns[tenancy.KeyOf(caller.From(ctx).Tenant, sessionID)+"/"+messageID]
}
