package sessions

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// HandOver gives a session to another server, by give: it saves the session and drops it from memory first. It reports
// whether it called give. A session that is not at rest stays: it has a turn, a prompt, a call, a pending callback or
// background work. With quiet, so does one with participants or subscribers, or that was used a moment ago. The streams of
// the session end with DRAINING, so that their callers continue elsewhere. Calls that look for the session wait meanwhile.
func (st *Store) HandOver(ctx context.Context, key string, quiet bool, give func() error) (bool, error) {
	e := st.Get(key)
	if e == nil { // evicted
		release, ok := st.table.Reserve(key)
		if !ok {
			return false, nil
		}
		defer release()
		err := give()
		if err == nil {
			st.evicted.remove(key)
		}
		return true, err
	}
	finish, ok := st.table.BeginRemove(e)
	if !ok {
		return false, nil
	}
	if left, err := e.Session.Loader().HandOver(ctx, quiet, func() error { return st.saver.Save(e) }); !left {
		finish(false)
		return false, err
	}
	defer finish(true)
	st.drop(e)
	return true, give()
}

// drop ends what memory has of a session that is Deleted there. The directory still has it.
func (st *Store) drop(e *Entry) {
	s := e.Session
	s.Prompts().Outbox().Close()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := s.Journal().Close(ctx); err != nil {
		st.log.Error("closing a journal failed", "session_id", s.ID(), "error", err)
	}
	st.cfg.Forget(e.Key())
}

// NodeLabels returns the labels that a saved session needs of its server; nil if it needs none.
func NodeLabels(saved []byte) map[string]string {
	var in struct {
		Session struct{ NodeLabels map[string]string }
	}
	_ = json.Unmarshal(saved, &in) // what cannot be read is not restored anywhere
	return in.Session.NodeLabels
}

// Unsaved returns the paths of the credentials of a session that the directory does not store.
func (st *Store) Unsaved(e *Entry) []string {
	r, ok := st.recordOf(e)
	if !ok || len(r.Sealed) > 0 {
		return nil
	}
	return slices.Concat(session.SavedMissing(r.Session), r.Lacks)
}
