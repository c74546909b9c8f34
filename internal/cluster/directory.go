package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natsstore"
)

// acquireTimeout bounds the acquisition of a session by a call of the bridge.
const acquireTimeout = 20 * time.Second

// DirectoryConfig configures a directory. All fields are required.
type DirectoryConfig struct {
	Node  *Node
	Store *natsstore.Store
	// Writer writes the journals.
	Writer *journal.Writer
	// Key returns the key of a tenant's session.
	Key func(tenant, id string) string
	// NodeLabels returns the labels that a saved session needs of its node; nil if it needs none.
	NodeLabels func(state []byte) map[string]string
	// Folders has the CLI's folders of the sessions.
	Folders *Folders
	// LostMessages returns a function that reports whether a message, by the CLI's id, is known not to be part of the
	// conversation, of the outbox of a session.
	LostMessages func(outbox backend.Files) (lost func(messageID string) bool, err error)
	// Lost is called when a write was refused because another node owns the session: this node was taken for dead, and
	// must not serve any more.
	Lost   func(error)
	Logger *slog.Logger
}

// Directory stores the sessions of a bridge in the cluster. It implements bridge.Directory: a session is acquired
// before its data are read or written, and stays this node's until it is removed, or the node is closed or lost. It has
// no goroutine. Its mutex guards the maps; it is not held during requests.
type Directory struct {
	cfg      DirectoryConfig
	logs     backend.Logs
	requests *natsstore.Requests

	mu      sync.Mutex
	owned   map[string]*owned
	damaged map[string]backend.Damage
}

// owned is a session of this node.
type owned struct {
	lease   *lease
	records *natsstore.Session
	// folder is the CLI's folder, if its record was not completed by the session's journal yet.
	folder string
}

// NewDirectory returns a directory.
func NewDirectory(cfg DirectoryConfig) *Directory {
	d := &Directory{
		cfg: cfg, logs: cfg.Store.Logs(cfg.Lost),
		owned: map[string]*owned{}, damaged: map[string]backend.Damage{},
	}
	d.requests = cfg.Store.Requests(d.ownership)
	return d
}

// ownership implements natsstore.Ownership.
func (d *Directory) ownership(tenant, id string) (key string, term uint64) {
	key = d.cfg.Key(tenant, id)
	if o := d.get(key); o != nil {
		term = o.lease.term
	}
	return key, term
}

// own acquires a session, unless this node has it. Calls for one session do not overlap: the bridge opens a session
// once at a time.
func (d *Directory) own(key string) (*owned, error) {
	if o := d.get(key); o != nil {
		return o, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), acquireTimeout)
	defer cancel()
	l, err := d.cfg.Node.acquire(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("acquiring session %q: %w", key, err)
	}
	o := &owned{lease: l}
	o.records, err = d.cfg.Store.OpenSession(ctx, key, l.term, func(err error) {
		if d.get(key) == o { // else a write that hung came after a hand-over
			d.cfg.Lost(err)
		}
	})
	if err == nil {
		o.folder, err = d.restoreFolder(ctx, key, l.term)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout) // the other one may be over
		defer cancel()
		return nil, errors.Join(err, l.handOver(ctx, ""))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owned[key] = o
	return o, nil
}

// restoreFolder restores the CLI's folder of a session that is stored, and returns its path; "" if it has none.
func (d *Directory) restoreFolder(ctx context.Context, key string, term uint64) (string, error) {
	state, stored, err := d.cfg.Store.State(ctx, key)
	if err != nil || !stored {
		return "", err
	}
	return d.cfg.Folders.restore(ctx, key, state, term)
}

// get returns a session of this node, nil if it does not have it.
func (d *Directory) get(key string) *owned {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.owned[key]
}

// Stored reports whether the cluster has a session, of any node.
func (d *Directory) Stored(ctx context.Context, key string) (bool, error) {
	_, found, err := d.cfg.Store.State(ctx, key)
	return found, err
}

// RequestsOf returns the remembered requests of a session.
func (d *Directory) RequestsOf(ctx context.Context, key string) ([]backend.Request, error) {
	return d.requests.OfSession(ctx, key)
}

// NextEpoch implements sessions.Directory.
func (d *Directory) NextEpoch() (uint64, error) { return d.cfg.Store.NextEpoch(context.Background()) }

// Journal implements sessions.Directory.
func (d *Directory) Journal(key string, epoch uint64) (*journal.Disk, journal.Recovery, error) {
	o, err := d.own(key)
	if err != nil {
		return nil, journal.Recovery{}, err
	}
	tail, err := d.openTail(o)
	if err != nil {
		return nil, journal.Recovery{}, err
	}
	disk, found, err := journal.OpenLog(tappedLogs{d.logs, tail}, key, o.lease.term, epoch, key, d.cfg.Writer)
	if err == nil {
		err = tail.write(o.folder)
	}
	if err != nil {
		return nil, found, err
	}
	o.folder = ""
	return disk, found, nil
}

// openTail returns what is to complete the CLI's record of a session.
func (d *Directory) openTail(o *owned) (*tail, error) {
	if o.folder == "" { // nothing is to be completed
		return openTail("", func(string) bool { return false })
	}
	lost, err := d.cfg.LostMessages(o.records.Outbox())
	if err != nil {
		return nil, err
	}
	return openTail(o.folder, lost)
}

// Sessions implements sessions.Directory. A node has no sessions at its start: it takes them over one at a time.
func (*Directory) Sessions() (map[string]json.RawMessage, error) { return nil, nil }

// Session implements sessions.Directory.
func (d *Directory) Session(key string) (json.RawMessage, error) {
	if _, err := d.own(key); err != nil {
		return nil, err
	}
	state, _, err := d.cfg.Store.State(context.Background(), key)
	return state, err
}

// Knows implements sessions.Directory. It is as late as this node's view of the cluster.
func (d *Directory) Knows(key string) bool { return d.get(key) != nil || d.cfg.Node.view.knows(key) }

// Save implements sessions.Directory.
func (d *Directory) Save(states ...backend.State) error {
	var errs []error
	for _, s := range states {
		if err := d.save(s.Key, s.Data); err != nil {
			errs = append(errs, fmt.Errorf("session %q: %w", s.Key, err))
		}
	}
	return errors.Join(errs...)
}

func (d *Directory) save(key string, state []byte) error {
	o, err := d.own(key)
	if err == nil {
		err = d.require(key, state)
	}
	if err == nil {
		err = o.records.Save(context.Background(), state)
	}
	if err == nil {
		d.cfg.Folders.changed(key, state, o.lease.term)
	}
	return err
}

// require tells the other nodes what a session needs of its node, by its state.
func (d *Directory) require(key string, state []byte) error {
	labels := d.cfg.NodeLabels(state)
	if labels == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	return d.cfg.Node.Require(ctx, key, labels)
}

// Remove implements sessions.Directory.
func (d *Directory) Remove(key string) error {
	o, err := d.own(key)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := o.records.Remove(ctx); err != nil { // the rest may be a later owner's
		return err
	}
	err = errors.Join(d.cfg.Store.RemoveLog(ctx, key), d.cfg.Folders.remove(ctx, key), d.cfg.Node.release(ctx, key))
	if err != nil {
		return err
	}
	d.mu.Lock()
	delete(d.owned, key)
	delete(d.damaged, key)
	d.mu.Unlock()
	return o.lease.forget(ctx)
}

// HandOver gives a session to another member, "" for any. The bridge must have dropped it from memory. After an error
// the session may still be this node's.
func (d *Directory) HandOver(ctx context.Context, key, next string) error {
	o := d.get(key)
	if o == nil {
		return nil
	}
	if err := d.cfg.Folders.flush(key); err != nil {
		return fmt.Errorf("saving the CLI's folder of session %q: %w", key, err)
	}
	d.mu.Lock()
	delete(d.owned, key)
	d.mu.Unlock()
	return o.lease.handOver(ctx, next)
}

// Owned returns the keys of the sessions of this node.
func (d *Directory) Owned() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.owned))
}

// SetAside implements sessions.Directory. The data stay where they are; this node remembers the reason until it ends.
func (d *Directory) SetAside(key, reason string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.damaged[key] = backend.Damage{Key: key, Reason: reason, FoundAt: time.Now()}
	return nil
}

// TakeUp implements sessions.Directory.
func (d *Directory) TakeUp(key string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.damaged, key)
	return nil
}

// Damaged implements sessions.Directory.
func (d *Directory) Damaged() []backend.Damage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Values(d.damaged), func(a, b backend.Damage) int {
		return strings.Compare(a.Key, b.Key)
	})
}

// DamageOf implements sessions.Directory.
func (d *Directory) DamageOf(key string) (backend.Damage, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	damage, ok := d.damaged[key]
	return damage, ok
}

// Usage implements sessions.Directory. It is that of the sessions which nodes of this node's name have deleted: the
// rows of all nodes are added by the calls that ask every node.
func (d *Directory) Usage(tenant string) (json.RawMessage, error) {
	parts, err := d.cfg.Store.Usage(context.Background(), tenant)
	return parts[d.cfg.Node.cfg.Name], err
}

// SaveUsage implements sessions.Directory.
func (d *Directory) SaveUsage(tenant string, rows []byte) error {
	return d.cfg.Store.SaveUsage(context.Background(), tenant, d.cfg.Node.cfg.Name, rows)
}

// Outbox implements sessions.Directory.
func (d *Directory) Outbox(key string) backend.Files {
	o, err := d.own(key)
	if err != nil {
		return noFiles{err}
	}
	return o.records.Outbox()
}

// Requests implements sessions.Directory.
func (d *Directory) Requests() (backend.Requests, []backend.Request, error) {
	return d.requests, nil, nil
}

// noFiles are the files of a session that could not be acquired.
type noFiles struct{ err error }

func (f noFiles) List() ([]string, error)     { return nil, f.err }
func (f noFiles) Read(string) ([]byte, error) { return nil, f.err }
func (f noFiles) Write(string, []byte) error  { return f.err }
func (f noFiles) Load() ([]byte, error)       { return nil, f.err }
func (f noFiles) Save([]byte) error           { return f.err }
func (f noFiles) Remove(string) error         { return f.err }
