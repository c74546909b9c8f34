package prompt

import (
	"context"
	"slices"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
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

// forget drops the turns of a session that was deleted.
func (rs *runs) forget(s *session.Session) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for key, t := range rs.turns {
		if t.s == s {
			delete(rs.turns, key)
			rs.order = slices.DeleteFunc(rs.order, func(o string) bool { return o == key })
		}
	}
}

func (rs *runs) get(ctx context.Context, sessionID, messageID string) *startedTurn {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.turns[tenancy.KeyOf(caller.From(ctx).Tenant, sessionID)+"/"+messageID]
}
