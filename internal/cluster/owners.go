package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrOwned reports a session that has another owner.
	ErrOwned = errors.New("the session has another owner")
	// errLost reports that the node's lease has ended.
	errLost = errors.New("the ownership of the session was lost")
)

// acquireTries is how often acquire reads a session's owner again after another node has changed it.
const acquireTries = 3

// holdings are the sessions that this node owns. Its mutex guards what follows it; a membership is locked while it is
// held.
type holdings struct {
	mu      sync.Mutex
	current *membership // nil while the node has no lease
	leases  map[string]*lease
	closed  bool
}

// begin notes a new lease of the node.
func (h *holdings) begin(m *membership) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop()
	h.current, h.leases = m, map[string]*lease{}
}

// finish ends all leases of a membership that has ended.
func (h *holdings) finish(m *membership) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == m {
		h.drop()
	}
}

// drop ends all leases. The caller holds mu.
func (h *holdings) drop() {
	h.current, h.leases = nil, nil
}

// valid returns the node's lease, nil if it has none. The caller holds mu.
func (h *holdings) valid() *membership {
	if h.current != nil && !h.current.valid() {
		h.drop()
	}
	return h.current
}

// member returns the member of the node, "" if it has no lease.
func (h *holdings) member() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.valid(); m != nil {
		return m.id
	}
	return ""
}

// lost returns a channel that is closed at the end of the node's lease.
func (h *holdings) lost() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.valid(); m != nil {
		return m.lost
	}
	over := make(chan struct{})
	close(over)
	return over
}

// reserve notes a session that the node is about to acquire. It returns ErrOwned if the node has the session, and
// errLost if the node has no lease. put ends the reservation, with nil if the session was not acquired.
func (h *holdings) reserve(session string) (m *membership, put func(*lease) error, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m = h.valid()
	if m == nil || h.closed {
		return nil, nil, fmt.Errorf("this node has no lease: %w", errLost)
	}
	if _, taken := h.leases[session]; taken {
		return nil, nil, ErrOwned
	}
	reserved := &lease{session: session, member: m}
	h.leases[session] = reserved
	return m, func(l *lease) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.leases[session] == reserved {
			delete(h.leases, session)
		}
		if l == nil {
			return nil
		}
		if h.valid() != m || h.closed {
			return fmt.Errorf("this node has lost its lease: %w", errLost)
		}
		h.leases[session] = l
		return nil
	}, nil
}

// lease returns the lease of a session, nil if the node does not own it now.
func (h *holdings) lease(session string) *lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.valid() == nil {
		return nil
	}
	if l := h.leases[session]; l != nil && l.term != 0 {
		return l
	}
	return nil
}

// session reports whether this node owns a session or is acquiring it.
func (h *holdings) session(session string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leases[session] != nil
}

// remove ends a lease; held is false if the node did not have it. Until done is called, the session counts as one that
// the node has, so that the node does not take it for its own while its key still says so.
func (h *holdings) remove(l *lease) (done func(), held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.valid() != l.member || h.leases[l.session] != l {
		return nil, false
	}
	leaving := &lease{session: l.session, member: l.member}
	h.leases[l.session] = leaving
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.leases[l.session] == leaving {
			delete(h.leases, l.session)
		}
	}, true
}

// close refuses further sessions. It returns the node's lease, if it has one, and the leases of its sessions.
func (h *holdings) close() (*membership, []*lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	m := h.valid()
	var all []*lease
	for _, l := range h.leases {
		if l.term != 0 {
			all = append(all, l)
		}
	}
	return m, all
}

// lease is the ownership of a session. It ends with the node's lease. Its term is 0 while the session is being acquired.
type lease struct {
	node    *Node
	session string
	member  *membership
	term    uint64
}

// handOver ends a lease, so that the session can be acquired at once, by another member if next is not "". For a lease
// that has ended it does nothing.
func (l *lease) handOver(ctx context.Context, next string) error {
	done, held := l.node.held.remove(l)
	if !held {
		return nil
	}
	defer done()
	h := holder{Next: next}
	revision, err := l.node.sessions.Update(ctx, keyOf(l.session), encode(h), l.term)
	if err == nil {
		l.node.view.setHolder(l.session, &h, revision) // the watch is later
	}
	if err != nil && !isConflict(err) {
		return fmt.Errorf("releasing session %q: %w", l.session, err)
	}
	return nil
}

// forget is handOver for a session that was deleted: it leaves no key behind.
func (l *lease) forget(ctx context.Context) error {
	done, held := l.node.held.remove(l)
	if !held {
		return nil
	}
	defer done()
	err := l.node.sessions.Purge(ctx, keyOf(l.session), jetstream.LastRevision(l.term))
	if err != nil && !isConflict(err) {
		return fmt.Errorf("releasing session %q: %w", l.session, err)
	}
	return nil
}

// acquire makes this node the owner of a session. It returns ErrOwned while another lease is held, also by this node. The
// term is the revision of the session's key, and later than every earlier one.
func (n *Node) acquire(ctx context.Context, session string) (*lease, error) {
	m, put, err := n.held.reserve(session)
	if err != nil {
		return nil, err
	}
	term, err := n.take(ctx, m, session)
	if err != nil {
		return nil, errors.Join(err, put(nil))
	}
	l := &lease{node: n, session: session, member: m, term: term}
	if err := put(l); err != nil {
		return nil, err
	}
	return l, nil
}

// take makes a member the owner of a session, and returns the term.
func (n *Node) take(ctx context.Context, m *membership, session string) (term uint64, err error) {
	key, own := keyOf(session), encode(holder{Member: m.id, Node: n.cfg.Name, Address: n.cfg.Address})
	for range acquireTries {
		if !m.valid() {
			return 0, errLost
		}
		e, err := n.sessions.Get(ctx, key)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			term, err = n.sessions.Create(ctx, key, own)
		case err != nil:
			return 0, err
		default:
			if err := n.checkFree(ctx, m, decode[holder](e.Value())); err != nil {
				return 0, err
			}
			term, err = n.sessions.Update(ctx, key, own, e.Revision())
		}
		if !isConflict(err) {
			return term, err
		}
	}
	return 0, ErrOwned
}

// checkFree returns ErrOwned if a session has a holder that may still serve it.
func (n *Node) checkFree(ctx context.Context, own *membership, h holder) error {
	if h.Member == "" || h.Member == own.id { // released; or acquired by a request whose reply was lost
		return nil
	}
	fenced, err := n.fence(ctx, h.Member)
	if err == nil && !fenced {
		err = fmt.Errorf("%w: node %q", ErrOwned, h.Node)
	}
	return err
}

// fence reports whether the lease of a member is over. If so, the member cannot renew it any more.
func (n *Node) fence(ctx context.Context, id string) (bool, error) {
	_, err := n.nodes.Create(ctx, id, encode(member{Fenced: true, By: n.cfg.Name}))
	if err == nil {
		n.log.Info("this server has found that a lease is over", "member", id)
		return true, nil
	}
	if !isConflict(err) {
		return false, err
	}
	e, err := n.nodes.Get(ctx, id)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil // it has just expired; the caller tries again later
	}
	if err != nil {
		return false, err
	}
	return decode[member](e.Value()).Fenced, nil
}
