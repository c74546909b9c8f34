// Package sessions has the sessions of a bridge. A Store finds them for callers, creates and restores them,
// saves their state, evicts and removes them.
//
// A change of a session's state marks the session. Run saves it at once, or 20 ms after the previous save, together
// with the other sessions that have changed. A Create or Resume returns after the session was saved. The saved state
// has no readable secrets: a session that lacks them after a restart has the state CREDENTIALS_NEEDED, unless sealed.go
// had keys to encrypt them. At the start a Store restores all sessions, ends the processes of a killed bridge, and
// loads the sessions with pending tool calls or permissions, so that callers receive these again.
//
// A Store has no lock. It owns a registry, a saver, epochs and the usage of deleted sessions, each with its own lock; an
// Entry's lock guards the session's profile, and nothing else is locked while it is held. No lock is held while the
// directory is used to create or restore a session: it may be slow or remote. Run saves changed sessions on the goroutine
// that calls it; evictions run on goroutines of Config.Go. Close comes after both have ended.
package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// Directory stores what outlives the bridge: its sessions, their state and their journals. Package
// store implements it with a data directory of this machine. Package backend has the interfaces of
// its parts.
type Directory interface {
	// NextEpoch returns an epoch later than all before.
	NextEpoch() (uint64, error)
	// Journal opens a session's journal, or begins one with the epoch. journal.OpenLog makes one of
	// any backend.Logs.
	Journal(id string, epoch uint64) (*journal.Disk, journal.Recovery, error)
	// Sessions returns what was saved of each session, by id.
	Sessions() (map[string]json.RawMessage, error)
	// Session returns what was saved of one session, nil if nothing was.
	Session(id string) (json.RawMessage, error)
	// Knows reports whether a session is stored, also by another server of a cluster. It is called for each session of
	// a list: unlike Session it neither reads the state nor acquires the session.
	Knows(id string) bool
	// Save saves the states of some sessions, and keeps their data. An error names the sessions whose states were not
	// saved. Remove removes the state of a session, and what was set aside of the session.
	Save(states ...backend.State) error
	Remove(id string) error
	// SetAside moves the data of a session that cannot be restored to where Damaged lists it.
	// TakeUp moves what is left of them back for a session that is resumed.
	SetAside(id, reason string) error
	TakeUp(id string) error
	Damaged() []backend.Damage
	DamageOf(id string) (backend.Damage, bool)
	// Usage returns what SaveUsage stored of the deleted sessions of a tenant, nil if it stored nothing. Calls for one
	// tenant do not overlap.
	Usage(tenant string) (json.RawMessage, error)
	SaveUsage(tenant string, rows []byte) error
	// Outbox is where a session's prompts are until their turns have ended.
	Outbox(id string) backend.Files
	// Requests returns the log of requests that may come again, and what it holds.
	Requests() (backend.Requests, []backend.Request, error)
}

// closeTimeout bounds writing the rest of journals.
const closeTimeout = 10 * time.Second

// Config has what a store uses of the bridge.
type Config struct {
	// Directory stores the sessions; nil leaves them in memory.
	Directory Directory
	// Session returns the configuration of a tenant's new sessions. The store adds their
	// identity, host, journal and outbox.
	Session func(tenant string) session.Config
	// Host returns what the session of an entry uses of the bridge.
	Host    func(*Entry) session.Host
	Tenants *tenancy.Tenants
	// SetProfile gives a restored session its profile.
	SetProfile func(*Entry, runtime.Profile) (undo func())
	// Defaults are members of the configuration of sessions that do not set them.
	Defaults jsonobj.Object
	// Providers returns the server's model providers that a tenant's sessions may name. For caller.HostTenant
	// it returns all.
	Providers func(tenant string) session.Providers
	// Sealer encrypts credentials, so that they are stored. Without it they are not.
	Sealer Sealer
	// Forget is called when a session leaves memory.
	Forget func(key string)
	// Go runs f in the background until the bridge closes.
	Go  func(f func(context.Context)) bool
	Log *slog.Logger
}

// Store has the sessions. Call New to make one. It is safe for concurrent use.
type Store struct {
	cfg    Config
	log    *slog.Logger
	table  *registry
	saver  *saver
	epochs epochs
	// evicted has the journals of sessions that the directory has and the table has not.
	evicted evictedJournals
	// Deleted has the usage of deleted sessions.
	Deleted *DeletedUsage
}

// New returns an empty store.
func New(cfg Config) *Store {
	st := &Store{
		cfg: cfg, log: cfg.Log,
		table:   newRegistry(),
		Deleted: &DeletedUsage{directory: cfg.Directory, log: cfg.Log, tenants: map[string]*tenantUsage{}},
	}
	st.saver = newSaver(st.save)
	if cfg.Directory != nil {
		st.epochs.Reserve = cfg.Directory.NextEpoch
	}
	return st
}

// Run saves changed sessions until ctx ends.
func (st *Store) Run(ctx context.Context) { st.saver.Run(ctx) }

// Get returns the session of a key, nil if there is none.
func (st *Store) Get(key string) *Entry { return st.table.Get(key) }

// All returns the sessions of all tenants, in no order.
func (st *Store) All() []*Entry { return st.table.All() }

// Usable returns the sessions that their callers may use, of all tenants, in no order.
func (st *Store) Usable() []*Entry {
	return slices.DeleteFunc(st.All(), func(e *Entry) bool { return e.Session.Loader().Usable() != nil })
}

// Sessions returns the sessions of all tenants, in no order.
func (st *Store) Sessions() []*session.Session {
	all := st.All()
	out := make([]*session.Session, len(all))
	for i, e := range all {
		out[i] = e.Session
	}
	return out
}

// EntryOf returns the entry of a session; nil if the session was removed.
func (st *Store) EntryOf(s *session.Session) *Entry {
	if e := st.Get(s.Key()); e != nil && e.Session == s {
		return e
	}
	return nil
}

// GetOrCreate returns the session of an id: the one in memory, else the one that the directory has,
// else a new one. fresh reports whether it is new. It returns SESSION_UNAVAILABLE if the directory
// cannot open the session's journal.
func (st *Store) GetOrCreate(ctx context.Context, tenant, id string) (e *Entry, fresh bool, err error) {
	e, made, err := st.table.GetOrCreate(ctx, session.Key(tenant, id), st.Remove, func() (e *Entry, err error) {
		e, fresh, err = st.reopen(tenant, id)
		return e, err
	})
	if err != nil {
		return nil, false, session.Classify(err, "")
	}
	if made && !fresh {
		st.MarkDirty(e) // a save before the table had the session did nothing
	}
	return e, fresh, nil
}

// Remove removes a session that could not be opened, or was deleted, with its state. What it used of models stays in
// Deleted.
func (st *Store) Remove(e *Entry) { _ = st.Erase(e) }

// Erase is Remove for a caller that is told of the deletion. Its error is as that of Save.
func (st *Store) Erase(e *Entry) error {
	finish, ok := st.table.BeginRemove(e)
	if !ok {
		return nil
	}
	var err error
	defer func() {
		st.cfg.Forget(e.Key())
		finish(true)
	}()
	e.Session.Prompts().Outbox().Close()
	st.saver.Exclusively(func() {
		err = st.removeState(e.Session)
		st.table.Drop(e) // so that a session that has changed is not saved again
	})
	st.Deleted.add(e.Session.Tenant(), e.Session.Usage())
	return unsaved(e, err)
}

// TrackDisconnected notes that a session was disconnected, and evicts older ones.
func (st *Store) TrackDisconnected(e *Entry) {
	for _, oldest := range st.table.TrackDisconnected(e) {
		st.cfg.Go(func(context.Context) { st.evict(oldest) })
	}
}

// evict removes a disconnected session from memory. The directory still has it.
func (st *Store) evict(e *Entry) {
	if st.cfg.Directory == nil {
		st.Remove(e)
		return
	}
	_ = st.saver.Save(e) // the log has the error
	finish, ok := st.table.BeginRemove(e)
	if !ok {
		return
	}
	if !e.Session.Loader().Evict() {
		finish(false) // it has just been resumed
		return
	}
	defer finish(true)
	st.evicted.add(e.Session)
	st.drop(e)
}

// create returns a new session with its journal and outbox, or SESSION_UNAVAILABLE if these cannot be opened.
func (st *Store) create(tenant, id string) (*Entry, error) {
	key := session.Key(tenant, id)
	epoch, err := st.epochs.Next()
	if err != nil {
		return nil, unavailable(st.log, id, err)
	}
	box, err := st.openOutbox(key)
	if err != nil {
		return nil, unavailable(st.log, id, err)
	}
	var disk *journal.Disk
	if d := st.cfg.Directory; d != nil {
		var doubtful bool
		if disk, doubtful, err = openJournal(d, st.log, key, id, epoch); err != nil {
			return nil, err
		}
		if doubtful {
			box.Edit()
		}
	}
	e := NewEntry(st.cfg.Tenants.ProfileOf(tenant))
	cfg := st.cfg.Session(tenant)
	cfg.ID, cfg.Tenant, cfg.Host = id, tenant, st.cfg.Host(e)
	cfg.Epoch, cfg.Log, cfg.Outbox = epoch, disk, box
	e.Session = session.New(cfg)
	st.evicted.remove(key)
	return e, nil
}

// openOutbox opens a session's outbox. The error is the disk's.
func (st *Store) openOutbox(key string) (*outbox.Outbox, error) {
	var disk outbox.Disk
	if d := st.cfg.Directory; d != nil {
		disk = d.Outbox(key)
	}
	box, err := outbox.Open(disk)
	if errors.Is(err, outbox.ErrDamaged) {
		st.log.Error("prompts whose turns had not ended may be lost", "session_id", key, "error", err)
		err = nil
	}
	return box, err
}

// NextEpoch returns an epoch later than all before.
func (st *Store) NextEpoch() uint64 {
	epoch, err := st.epochs.Next()
	if err != nil {
		st.log.Error("reserving an epoch on disk failed", "error", err)
	}
	return epoch
}

// openJournal opens the journal of a session, or returns SESSION_UNAVAILABLE. With doubtful, the outbox may be older than what
// was saved last.
func openJournal(
	d Directory, log *slog.Logger, key, id string, epoch uint64,
) (disk *journal.Disk, doubtful bool, err error) {
	disk, found, err := d.Journal(key, epoch)
	if err != nil {
		return nil, false, unavailable(log, id, err)
	}
	if found.Lost {
		log.Warn("events of the session may be lost", "session_id", key, "kept", found.Events,
			"bytes_damaged", found.Skipped, "bytes_cut", found.Cut, "set_aside", found.SetAside)
	}
	return disk, found.Doubtful, nil
}

// unavailable logs the cause, which may have paths of the server, and returns SESSION_UNAVAILABLE.
func unavailable(log *slog.Logger, id string, cause error) error {
	log.Error("opening the storage of a session failed", "session_id", id, "error", cause)
	return fault.New(fault.SessionUnavailable,
		"session %q cannot be opened: its storage does not work; the server's log has the cause", id).With("session_id", id)
}
