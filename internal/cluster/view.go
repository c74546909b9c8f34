package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// Owner is a node, for a session the one that has it.
type Owner struct {
	// Node is the node's name; "" if no node has the session.
	Node string
	// Address is the "HOST:PORT" of the node's listener for other nodes.
	Address string
	// Here reports that it is this node.
	Here bool
}

// view is what the watches have reported of nodes and sessions. It can be late. Its mutex guards the maps.
type view struct {
	changed chan struct{} // capacity 1: a session may have lost its owner

	mu      sync.Mutex
	members map[string]member
	holders map[string]held
	needs   map[string]map[string]string // node labels by session
}

// held is the owner of a session at a revision of its key.
type held struct {
	holder
	revision uint64
}

func newView() *view {
	return &view{
		changed: make(chan struct{}, 1), members: map[string]member{}, holders: map[string]held{},
		needs: map[string]map[string]string{},
	}
}

// notify wakes who waits for changed.
func (v *view) notify() {
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// setMember notes what became of a member; nil if its key is gone.
func (v *view) setMember(id string, m *member) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if m == nil || m.Fenced {
		delete(v.members, id)
		v.notify()
		return
	}
	_, known := v.members[id]
	v.members[id] = *m
	if !known {
		v.notify() // it may be the first that can have some session
	}
}

// setDraining notes that a member drains, or does not.
func (v *view) setDraining(id string, on bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if m, ok := v.members[id]; ok {
		m.Draining = on
		v.members[id] = m
	}
}

// states returns what members have told, without one of them.
func (v *view) states(without string) (out []json.RawMessage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, m := range v.members {
		if id != without && m.State != nil {
			out = append(out, m.State)
		}
	}
	return out
}

// compatible returns an error if a living member has a version with which this node cannot work.
func (v *view) compatible() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range v.members {
		if m.Protocol < protocol-1 || m.Protocol > protocol+1 {
			return fmt.Errorf("the replica %q has version %d of the cluster's protocol, this server has %d: upgrade "+
				"all replicas to a release in between first, or stop all of them", m.Node, m.Protocol, protocol)
		}
	}
	return nil
}

// setHolder notes the owner of a session, unless a later one is known; nil if the key is gone.
func (v *view) setHolder(session string, h *holder, revision uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.holders[session].revision > revision {
		return
	}
	if h == nil {
		delete(v.holders, session)
		return
	}
	v.holders[session] = held{*h, revision}
	if _, alive := v.members[h.Member]; h.heir() != "" && !alive {
		v.notify()
	}
}

// owner returns the owner of a session, or the member to which it was handed over; the zero value if none is alive.
func (v *view) owner(session string) (id string, o Owner) {
	v.mu.Lock()
	defer v.mu.Unlock()
	id = v.holders[session].heir()
	m, alive := v.members[id]
	if !alive {
		return "", Owner{}
	}
	return id, Owner{Node: m.Node, Address: m.Address}
}

// knows reports whether a session has an owner, or had one and was not deleted.
func (v *view) knows(session string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, known := v.holders[session]
	return known
}

// heir returns the member that has a session or is to take it.
func (h holder) heir() string { return cmp.Or(h.Member, h.Next) }

// all returns the members that are alive, in the order of their names.
func (v *view) all() []Member {
	v.mu.Lock()
	defer v.mu.Unlock()
	sessions := map[string]int{}
	for _, h := range v.holders {
		sessions[h.heir()]++
	}
	out := make([]Member, 0, len(v.members))
	for id, m := range v.members {
		out = append(out, Member{
			ID: id, Owner: Owner{Node: m.Node, Address: m.Address}, Sessions: sessions[id], Draining: m.Draining,
			Labels: m.Labels,
		})
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Address, b.Address))
	})
	return out
}

// orphans returns the sessions without a living owner that a member takes: also those that their owner has released, so
// that lists have them, and sessions that the member owns itself but does not have, because the reply to a request that
// acquired or released them was lost.
func (v *view) orphans(own string, has func(session string) bool) (sessions []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := v.takers(nil)
	for session, h := range v.holders {
		members := all
		if needs := v.needs[session]; needs != nil {
			members = v.takers(needs)
		}
		_, alive := v.members[h.heir()]
		switch {
		case alive && h.heir() != own:
		case alive && has(session), !alive && winner(session, members) != own:
		default:
			sessions = append(sessions, session)
		}
	}
	slices.Sort(sessions)
	return sessions
}

// setNeeds notes the node labels that a session needs; nil for none.
func (v *view) setNeeds(session string, labels map[string]string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if labels == nil {
		delete(v.needs, session)
		return
	}
	v.needs[session] = labels
}

// needsOf returns the node labels that a session needs; nil if it is unknown or needs none.
func (v *view) needsOf(session string) map[string]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.needs[session]
}

// takers returns the members with labels that take sessions: all that do not drain, or else all. The caller holds mu.
func (v *view) takers(labels map[string]string) (ids []string) {
	var draining []string
	for id, m := range v.members {
		if !fits(m.Labels, labels) {
			continue
		}
		if m.Draining {
			draining = append(draining, id)
		} else {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return draining
	}
	return ids
}

// watch starts the watches of both buckets, until running ends. It returns when they have reported all there is.
func (n *Node) watch(ctx, running context.Context) error {
	for _, w := range []struct {
		bucket jetstream.KeyValue
		take   func(jetstream.KeyValueEntry)
	}{{n.nodes, n.sawMember}, {n.sessions, n.sawHolder}} {
		watcher, err := w.bucket.WatchAll(running)
		if err != nil {
			return fmt.Errorf("watching the bucket %q: %w", w.bucket.Bucket(), err)
		}
		known := make(chan struct{})
		n.wg.Go(func() { follow(running, watcher, w.take, known) })
		select {
		case <-known:
		case <-ctx.Done():
			return fmt.Errorf("reading the bucket %q: %w", w.bucket.Bucket(), context.Cause(ctx))
		}
	}
	return nil
}

// follow calls take for each change of a bucket until ctx ends. It closes known after all that was there at first.
func follow(ctx context.Context, w jetstream.KeyWatcher, take func(jetstream.KeyValueEntry), known chan<- struct{}) {
	defer func() { _ = w.Stop() }() // the connection may be closed
	for {
		select {
		case e, open := <-w.Updates():
			if !open {
				return
			}
			if e != nil {
				take(e)
				continue
			}
			if known != nil {
				close(known)
				known = nil
			}
		case <-ctx.Done():
			return
		}
	}
}

// sawMember notes a change of a node's key.
func (n *Node) sawMember(e jetstream.KeyValueEntry) {
	if e.Operation() != jetstream.KeyValuePut {
		n.seen.forget(e.Key())
		n.view.setMember(e.Key(), nil)
		return
	}
	m := decode[member](e.Value())
	if m.Fenced {
		n.seen.forget(e.Key())
	} else {
		n.seen.note(e.Key(), e.Revision(), n.cfg.now())
	}
	n.view.setMember(e.Key(), &m)
}

// sawHolder notes a change of a session's key.
func (n *Node) sawHolder(e jetstream.KeyValueEntry) {
	if rest, ok := strings.CutPrefix(e.Key(), needsPrefix); ok {
		if session, ok := sessionOf(rest); ok && e.Operation() == jetstream.KeyValuePut {
			n.view.setNeeds(session, decode[map[string]string](e.Value()))
		} else if ok {
			n.view.setNeeds(session, nil)
		}
		return
	}
	session, ok := sessionOf(e.Key())
	if !ok {
		return
	}
	if e.Operation() != jetstream.KeyValuePut {
		n.view.setHolder(session, nil, e.Revision())
		return
	}
	h := decode[holder](e.Value())
	n.view.setHolder(session, &h, e.Revision())
}

// Locate returns the node that has a session, as far as this node knows; the zero Owner if no living node has it. That
// it is this node is certain.
func (n *Node) Locate(session string) Owner {
	if n.held.lease(session) != nil {
		return n.self()
	}
	id, o := n.view.owner(session)
	if id == n.held.member() { // it has just released the session, or acquires it
		return Owner{}
	}
	return o
}

// Verify is Locate with the answer of the server.
func (n *Node) Verify(ctx context.Context, session string) (Owner, error) {
	if n.held.lease(session) != nil {
		return n.self(), nil
	}
	e, err := n.sessions.Get(ctx, keyOf(session))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return Owner{}, nil
	}
	if err != nil {
		return Owner{}, fmt.Errorf("looking up the owner of session %q: %w", session, err)
	}
	n.sawHolder(e)
	return n.Locate(session), nil
}

// self is this node.
func (n *Node) self() Owner { return Owner{Node: n.cfg.Name, Address: n.cfg.Address, Here: true} }

// Member is a living node.
type Member struct {
	Owner

	// ID names the node's lease.
	ID string
	// Sessions is how many sessions it has.
	Sessions int
	// Draining reports that it leaves its sessions to others.
	Draining bool
	// Labels are what sessions can need of it.
	Labels map[string]string
}

// Members returns the nodes that are alive, as far as this node knows, in the order of their names.
func (n *Node) Members() []Member {
	all, own := n.view.all(), n.held.member()
	for i := range all {
		all[i].Here = all[i].ID == own
	}
	return all
}

// Heir returns the member that takes a session of this node next; ok is false if no other member takes it.
func (n *Node) Heir(session string) (m Member, ok bool) {
	others := slices.DeleteFunc(n.Members(), func(m Member) bool {
		return m.Here || m.Draining || !n.Fits(m, session)
	})
	ids := make([]string, len(others))
	for i, m := range others {
		ids[i] = m.ID
	}
	best := winner(session, ids)
	i := slices.IndexFunc(others, func(m Member) bool { return m.ID == best })
	if i < 0 {
		return Member{}, false
	}
	return others[i], true
}

// Needs returns the labels that a session needs of its node; nil if none is known.
func (n *Node) Needs(session string) map[string]string { return n.view.needsOf(session) }

// Fits reports whether a member has the labels that a session needs.
func (n *Node) Fits(m Member, session string) bool {
	return fits(m.Labels, n.Needs(session))
}

// Require stores the labels that a session needs of its node, before the session is stored.
func (n *Node) Require(ctx context.Context, session string, labels map[string]string) error {
	if maps.Equal(n.Needs(session), labels) {
		return nil
	}
	if _, err := n.sessions.Put(ctx, needsKeyOf(session), encode(labels)); err != nil {
		return fmt.Errorf("storing the node labels of session %q: %w", session, err)
	}
	n.view.setNeeds(session, labels) // the watch is later
	return nil
}

// release removes the labels that a session needs, after the session.
func (n *Node) release(ctx context.Context, session string) error {
	if n.Needs(session) == nil {
		return nil
	}
	if err := n.sessions.Purge(ctx, needsKeyOf(session)); err != nil {
		return fmt.Errorf("removing the node labels of session %q: %w", session, err)
	}
	n.view.setNeeds(session, nil)
	return nil
}

// fits reports whether a node with labels can have a session that needs some.
func fits(has, needs map[string]string) bool {
	for key, value := range needs {
		if got, ok := has[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// Place returns the node for a session that has none: this one if it has the labels that the session needs and does not
// drain, or else another one. labels are those of a new session. ok is false if no node has the labels.
func (n *Node) Place(session string, labels map[string]string) (o Owner, ok bool) {
	if stored := n.Needs(session); stored != nil {
		labels = stored
	}
	fit := slices.DeleteFunc(n.Members(), func(m Member) bool { return !fits(m.Labels, labels) })
	own := fits(n.cfg.Labels, labels)
	if own && !n.draining.Load() {
		return n.self(), true
	}
	ready := slices.DeleteFunc(slices.Clone(fit), func(m Member) bool { return m.Here || m.Draining })
	switch {
	case len(ready) > 0:
		return ready[rand.IntN(len(ready))].Owner, true
	case own:
		return n.self(), true
	case len(fit) > 0:
		return fit[rand.IntN(len(fit))].Owner, true
	}
	return Owner{}, false
}

// Peers returns the other nodes that are alive, as far as this node knows.
func (n *Node) Peers() (peers []Owner) {
	for _, m := range n.Members() {
		if !m.Here {
			peers = append(peers, m.Owner)
		}
	}
	return peers
}
