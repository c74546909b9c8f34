package sessions

import (
	"context"
	"maps"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// evictedJournals has the sizes of the journals of sessions that are disconnected and evicted from memory, since they
// count for the limits of their tenants. It is safe for concurrent use.
type evictedJournals struct {
	mu    sync.Mutex
	sizes map[string]journalSize // by key
	sums  map[string]int64       // of sizes, by tenant
}

type journalSize struct {
	tenant string
	bytes  int64
}

// add notes a session that is evicted.
func (j *evictedJournals) add(s *session.Session) {
	size := journalSize{s.Tenant(), s.Journal().Stored()}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.sizes == nil {
		j.sizes, j.sums = map[string]journalSize{}, map[string]int64{}
	}
	j.sizes[s.Key()] = size
	j.sums[size.tenant] += size.bytes
}

// remove forgets a session that is in memory again, or was deleted, or left this server.
func (j *evictedJournals) remove(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	size, ok := j.sizes[key]
	if !ok {
		return
	}
	delete(j.sizes, key)
	if j.sums[size.tenant] -= size.bytes; j.sums[size.tenant] == 0 {
		delete(j.sums, size.tenant)
	}
}

// has reports whether a session is evicted.
func (j *evictedJournals) has(key string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.sizes[key]
	return ok
}

// EvictedBytes returns the bytes of the stored events of sessions that are not in memory, by tenant.
func (st *Store) EvictedBytes() map[string]int64 {
	st.evicted.mu.Lock()
	defer st.evicted.mu.Unlock()
	return maps.Clone(st.evicted.sums)
}

// OwnOrEvicted returns the session of that id that the caller's own tenant has, also one that was disconnected and
// evicted from memory. It returns SESSION_NOT_FOUND if there is none.
func (st *Store) OwnOrEvicted(ctx context.Context, id string) (*Entry, error) {
	if e := st.Own(ctx, id); e != nil {
		return e, nil
	}
	if st.knowsEvicted(ctx, id) {
		return st.bringBack(ctx, caller.From(ctx).Tenant, id)
	}
	return nil, st.explainDamage(ctx, id, session.NotFound(id))
}

// Knows reports whether the caller's own tenant has opened a session of that id here, or at another server of the cluster.
// A store without a directory forgets sessions, so it reports true for all.
func (st *Store) Knows(ctx context.Context, id string) bool {
	d, tenant := st.cfg.Directory, caller.From(ctx).Tenant
	return d == nil || st.Own(ctx, id) != nil || d.Knows(session.Key(tenant, id)) || st.Damaged(tenant, id) != nil
}

// Has reports whether this server has a session of that id of the caller's own tenant, in memory or evicted from it.
func (st *Store) Has(ctx context.Context, id string) bool {
	return st.Own(ctx, id) != nil || st.evicted.has(session.Key(caller.From(ctx).Tenant, id))
}

// knowsEvicted reports whether the caller's own tenant has a session of that id that is not in memory.
func (st *Store) knowsEvicted(ctx context.Context, id string) bool {
	key := session.Key(caller.From(ctx).Tenant, id)
	if st.cfg.Directory == nil || tenancy.IsShared(id) || !st.cfg.Directory.Knows(key) {
		return false
	}
	state, err := st.cfg.Directory.Session(key)
	return err == nil && state != nil
}

// bringBack brings an evicted session back into memory, where it remains disconnected.
func (st *Store) bringBack(ctx context.Context, tenant, id string) (*Entry, error) {
	e, fresh, err := st.GetOrCreate(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	if fresh { // it was deleted at that moment
		e.Session.Loader().Opened()
		st.Remove(e)
		return nil, session.NotFound(id)
	}
	if e.Session.Loader().State() == session.Disconnected {
		st.TrackDisconnected(e)
	}
	return e, nil
}
