package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

// testTTL is the lease of the nodes of tests.
const testTTL = 4 * time.Second

// join makes a node with a separate connection, which cut closes.
func join(t testing.TB, server *natstest.Server, name string, more ...func(*Config)) (n *Node, cut func()) {
	t.Helper()
	js := server.JetStream()
	cfg := Config{
		JetStream: js, Cluster: "test", Name: name, Address: name + ":1", TTL: testTTL,
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, change := range more {
		change(&cfg)
	}
	n, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		n.Close(ctx)
	})
	return n, js.Conn().Close
}

// acquireSoon acquires a session when its owner is over.
func acquireSoon(t testing.TB, n *Node, session string) *lease {
	t.Helper()
	for t.Context().Err() == nil {
		l, err := n.acquire(t.Context(), session)
		if err == nil {
			return l
		}
		if !errors.Is(err, ErrOwned) {
			t.Fatal(err)
		}
		<-n.view.changed
	}
	t.Fatal("the session stays owned")
	return nil
}

// A node owns a session once at a time. A session that it has released has a later term, which the former lease does not
// end.
func TestOwners(t *testing.T) {
	t.Parallel()
	n, _ := join(t, natstest.Start(t), "n")
	first, err := n.acquire(t.Context(), "a")
	if err != nil || first.term == 0 {
		t.Fatalf("acquired with term %d, %v", first.term, err)
	}
	if _, err := n.acquire(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.acquire(t.Context(), "a"); !errors.Is(err, ErrOwned) {
		t.Errorf("acquiring an owned session returns %v", err)
	}
	if n.held.lease("a") != first {
		t.Error("the lease is lost")
	}
	if err := first.handOver(t.Context(), ""); err != nil || n.held.lease("a") != nil {
		t.Errorf("released, it is still held, %v", err)
	}
	second, err := n.acquire(t.Context(), "a")
	if err != nil || second.term <= first.term {
		t.Fatalf("it is acquired again with %v", err)
	}
	if err := first.handOver(t.Context(), ""); err != nil || n.held.lease("a") != second {
		t.Errorf("releasing it twice ends the next lease, %v", err)
	}
	if o, err := n.Verify(t.Context(), "a"); err != nil || !o.Here {
		t.Errorf("the owner is %v, %v", o, err)
	}
}

// A node that cannot renew has ended the leases of its sessions before another node can have one.
func TestLostBeforeTheNext(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	old, cut := join(t, server, "old")
	next, _ := join(t, server, "next")
	first, err := old.acquire(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	if o := next.Locate("s"); o != (Owner{Node: "old", Address: "old:1"}) {
		if o, err = next.Verify(t.Context(), "s"); err != nil || o != (Owner{Node: "old", Address: "old:1"}) {
			t.Errorf("located at %v, %v", o, err)
		}
	}
	lostAt := make(chan time.Duration, 1)
	go func() {
		<-old.Lost()
		lostAt <- uptime()
	}()
	cut()
	second := acquireSoon(t, next, "s")
	acquiredAt := uptime()
	if second.term <= first.term {
		t.Errorf("the term %d follows %d", second.term, first.term)
	}
	if old.held.lease("s") != nil {
		t.Error("the old node still has the session")
	}
	if lead := acquiredAt - <-lostAt; lead < testTTL/8 {
		t.Errorf("the old lease was lost only %s before the session was acquired, want about %s", lead, testTTL/4)
	}
	if o := old.Locate("s"); o.Here {
		t.Error("the old node takes the session for its own")
	}
	if o := next.Locate("s"); !o.Here {
		t.Errorf("the new owner is %v", o)
	}
	if _, err := old.acquire(t.Context(), "other"); !errors.Is(err, errLost) {
		t.Errorf("a node without a lease acquires a session: %v", err)
	}
}

// A member that was fenced loses its lease at its next renewal, for good: its process ends, and is given no session
// meanwhile.
func TestFencedMemberLeaves(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	n, _ := join(t, server, "n")
	if _, err := n.acquire(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	lost := n.Lost()
	js := server.JetStream()
	kv, err := js.KeyValue(t.Context(), "test-nodes")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kv.Keys(t.Context())
	if err != nil || len(keys) != 1 {
		t.Fatalf("the members are %v, %v", keys, err)
	}
	// As if the key had expired and another node had found that.
	if _, err := kv.Put(t.Context(), keys[0], encode(member{Fenced: true, By: "other"})); err != nil {
		t.Fatal(err)
	}
	<-lost
	if n.held.lease("s") != nil {
		t.Error("the member still has its session")
	}
	time.Sleep(testTTL / 2) // more than between renewals
	if _, err := n.acquire(t.Context(), "s"); !errors.Is(err, errLost) || n.held.member() != "" {
		t.Errorf("acquired again: %v, valid %t", err, n.held.member() != "")
	}
	if keys, err := kv.Keys(t.Context()); err != nil || len(keys) != 1 {
		t.Errorf("the members are %v, %v", keys, err)
	}
}

// The wall clock of a NATS server was set forward, so that it drops the key of a node whose own clock says that the lease
// is held. Another node gets the session, in a later term, and the first loses its lease for good.
func TestKeyDroppedEarly(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	still := func(c *Config) {
		c.TTL = time.Minute
		c.now = func() time.Duration { return 0 }
	}
	old, _ := join(t, server, "old", still)
	next, _ := join(t, server, "next", still)
	first, err := old.acquire(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	if err := old.nodes.Purge(t.Context(), old.held.member()); err != nil {
		t.Fatal(err)
	}
	if second := acquireSoon(t, next, "s"); second.term <= first.term {
		t.Errorf("the term %d follows %d", second.term, first.term)
	}
	if old.held.member() == "" {
		t.Error("the lease ended by the node's own clock, which stands still")
	}
	lost := old.Lost()
	old.renewNow()
	<-lost
	if old.held.lease("s") != nil {
		t.Error("the first node still has the session")
	}
	if _, err := old.acquire(t.Context(), "other"); !errors.Is(err, errLost) {
		t.Errorf("a node without a lease acquires a session: %v", err)
	}
}

// A living member is not fenced, and a session that is released is free at once.
func TestRelease(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	a, _ := join(t, server, "a")
	b, _ := join(t, server, "b")
	l, err := a.acquire(t.Context(), "tenant/s")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := b.acquire(t.Context(), "tenant/s"); !errors.Is(err, ErrOwned) {
			t.Errorf("acquired from a living member: %v", err)
		}
	}
	if peers := b.Peers(); !slices.Equal(peers, []Owner{{Node: "a", Address: "a:1"}}) {
		t.Errorf("the peers are %v", peers)
	}
	if err := l.handOver(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if o, err := b.Verify(t.Context(), "tenant/s"); err != nil || o != (Owner{}) {
		t.Errorf("a released session is at %v, %v", o, err)
	}
	if _, err := b.acquire(t.Context(), "tenant/s"); err != nil {
		t.Error(err)
	}
	if _, err := a.acquire(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	a.Close(t.Context())
	if a.held.lease("x") != nil {
		t.Error("a node that was closed still has a session")
	}
	if _, err := b.acquire(t.Context(), "x"); err != nil {
		t.Errorf("the session of a node that was closed: %v", err)
	}
}

// A deleted session leaves no key. Its next owner has a later term all the same.
func TestForget(t *testing.T) {
	t.Parallel()
	n, _ := join(t, natstest.Start(t), "n")
	l, err := n.acquire(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys, err := n.sessions.Keys(t.Context()); !errors.Is(err, jetstream.ErrNoKeysFound) {
		t.Errorf("left are %v, %v", keys, err)
	}
	next, err := n.acquire(t.Context(), "s")
	if err != nil || next.term <= l.term {
		t.Errorf("acquired again with %v", err)
	}
}

// Nodes with other settings than the cluster's do not join it.
func TestOtherSettings(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	join(t, server, "n")
	js := server.JetStream()
	for want, cfg := range map[string]Config{
		"expire after 4s, not 5s": {TTL: 5 * time.Second},
		"too short":               {TTL: time.Second},
	} {
		cfg.JetStream, cfg.Cluster, cfg.Name, cfg.Address = js, "test", "other", "other:1"
		n, err := Join(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("joining with other settings: %v, want %q", err, want)
		}
		if err == nil {
			n.Close(t.Context())
		}
	}
}

// Sessions of a dead member go to exactly one of the survivors, and are spread over them.
func TestOrphans(t *testing.T) {
	t.Parallel()
	v := newView()
	v.setMember("a", &member{Node: "a"})
	v.setMember("b", &member{Node: "b"})
	names := strings.Split("abcdefghijklmnopqrstuvwxyz", "")
	for i, s := range names {
		owner := "dead"
		if i%2 == 0 {
			owner = "a"
		}
		v.setHolder(s, &holder{Member: owner}, uint64(i+1))
	}
	v.setHolder("released", &holder{}, 99)
	unacknowledged := ""
	has := func(session string) bool { return session != unacknowledged }
	a, b := v.orphans("a", has), v.orphans("b", has)
	all := slices.Sorted(slices.Values(slices.Concat(a, b)))
	want := []string{"b", "d", "f", "h", "j", "l", "n", "p", "r", "released", "t", "v", "x", "z"}
	if !slices.Equal(all, want) || len(a) < 2 || len(b) < 2 {
		t.Errorf("a takes %v, b takes %v, want together %v", a, b, want)
	}
	v.setMember("b", nil)
	if got := v.orphans("a", has); !slices.Equal(got, want) {
		t.Errorf("alone, a takes %v", got)
	}
	v.setHolder("b", &holder{Member: "a"}, 1) // older than what is known
	v.setHolder("d", &holder{Member: "a"}, 100)
	if got := v.orphans("a", has); !slices.Equal(got, slices.Concat(want[:1], want[2:])) {
		t.Errorf("after d was acquired, a takes %v", got)
	}
	unacknowledged = "a"
	if got := v.orphans("a", has); !slices.Contains(got, "a") {
		t.Errorf("of an acquisition without acknowledgement, a takes %v", got)
	}
}

// The sessions of a node that died are claimed by the others, each until a claim succeeds.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	dead, cut := join(t, server, "dead")
	next, _ := join(t, server, "next")
	names := []string{"a", "b", "c", "d", "e", "f"}
	for _, s := range names {
		if _, err := dead.acquire(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	claimed := make(chan string, len(names))
	var failures atomic.Int64
	go func() {
		defer close(over)
		next.TakeOver(ctx, func(ctx context.Context, session string) error {
			if failures.Add(1) <= 3 {
				return errors.New("no storage")
			}
			_, err := next.acquire(ctx, session)
			if err == nil {
				claimed <- session
			}
			return err
		})
	}()
	cut()
	var got []string
	for range names {
		got = append(got, <-claimed)
	}
	cancel()
	<-over
	if slices.Sort(got); !slices.Equal(got, names) {
		t.Errorf("claimed were %v", got)
	}
}

// A session that was handed over is of the member that was named, for all who ask; another member gets it only when
// that one is gone. The former owner does not take it back.
func TestHandOver(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	a, _ := join(t, server, "a")
	b, _ := join(t, server, "b")
	c, cut := join(t, server, "c")
	for len(a.Members()) < 3 || len(b.Members()) < 3 {
		time.Sleep(time.Millisecond) // they learn it from their watches
	}
	for session := range 40 { // some of them would be a's or b's by their hash
		key := string(rune('A' + session))
		l, err := a.acquire(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.handOver(t.Context(), c.held.member()); err != nil {
			t.Fatal(err)
		}
		if got := a.Locate(key); got.Node != "c" {
			t.Fatalf("the former owner takes %q for the owner", got.Node)
		}
		if got, err := b.Verify(t.Context(), key); err != nil || got.Node != "c" {
			t.Fatalf("another node takes %q for the owner, %v", got.Node, err)
		}
		if got, err := c.Verify(t.Context(), key); err != nil || got != (Owner{}) {
			t.Fatalf("the next owner does not take it for its own to claim: %v, %v", got, err)
		}
	}
	if own := a.view.orphans(a.held.member(), a.held.session); len(own) > 0 {
		t.Errorf("the former owner takes back %q", own)
	}
	if all := c.view.orphans(c.held.member(), c.held.session); len(all) != 40 {
		t.Errorf("the next owner takes %d sessions", len(all))
	}
	cut()
	for tick := time.NewTicker(10 * time.Millisecond); len(a.Members()) > 2; {
		<-tick.C
	}
	mine := a.view.orphans(a.held.member(), a.held.session)
	for len(mine)+len(b.view.orphans(b.held.member(), b.held.session)) != 40 {
		time.Sleep(time.Millisecond) // b may learn it later
	}
	if len(mine) < 10 || len(mine) > 30 {
		t.Errorf("%d of 40 sessions go to one of two nodes", len(mine))
	}
}

// A session counts as the node's until its key says otherwise: between the two the node must not take it again.
func TestHandOverIsNotAnOrphan(t *testing.T) {
	t.Parallel()
	a, _ := join(t, natstest.Start(t), "a")
	l, err := a.acquire(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	for all := a.view.all(); len(all) == 0 || all[0].Sessions == 0; all = a.view.all() {
		time.Sleep(time.Millisecond) // the watch is later
	}
	done, held := a.held.remove(l)
	if own := a.view.orphans(a.held.member(), a.held.session); !held || len(own) > 0 {
		t.Errorf("held %t; while it leaves, the node takes back %q", held, own)
	}
	if a.Locate("s").Here {
		t.Error("a session that leaves is still at the node")
	}
	done()
	if own := a.view.orphans(a.held.member(), a.held.session); len(own) != 1 {
		t.Errorf("after a failure the node takes back %q", own)
	}
}

// A session goes only to nodes that have the labels it needs.
func TestLabels(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	zone := func(name string) func(*Config) {
		return func(c *Config) { c.Labels = map[string]string{"zone": name} }
	}
	a, _ := join(t, server, "a", zone("x"))
	b, _ := join(t, server, "b", zone("y"))
	c, _ := join(t, server, "c", zone("y"))
	needs := map[string]string{"zone": "y"}
	knows := func(n *Node) {
		t.Helper()
		for tick := time.NewTicker(time.Millisecond); t.Context().Err() == nil; <-tick.C {
			if len(n.Members()) == 3 && n.Needs("s") != nil {
				return
			}
		}
	}
	if err := b.Require(t.Context(), "s", needs); err != nil {
		t.Fatal(err)
	}
	knows(a)
	knows(c)
	for range 20 { // the choice is random
		if o, ok := a.Place("s", nil); !ok || o.Here {
			t.Fatalf("the session is placed at %v", o)
		}
		if o, ok := a.Place("new", needs); !ok || o.Here {
			t.Fatalf("a new session is placed at %v", o)
		}
	}
	if o, ok := a.Place("new", map[string]string{"zone": "z"}); ok {
		t.Errorf("a session that no node can have is placed at %v", o)
	}
	for i := range 10 { // the members have random ids, which decide
		id := fmt.Sprint("s", i)
		if err := b.Require(t.Context(), id, needs); err != nil {
			t.Fatal(err)
		}
		for b.Needs(id) == nil && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if m, ok := b.Heir(id); !ok || m.Node != "c" {
			t.Errorf("the heir is %v", m)
		}
	}
	c.Drain(true)
	for tick := time.NewTicker(time.Millisecond); t.Context().Err() == nil; <-tick.C {
		if m, ok := b.Heir("s"); !ok || m.Node != "c" {
			if ok {
				t.Errorf("the heir is %v", m)
			}
			break
		}
	}
	// The owner has died: the only members that take the session have its label.
	a.view.setHolder("s", &holder{Member: "gone"}, 1)
	for i := range 10 {
		id := fmt.Sprint("s", i)
		for a.Needs(id) == nil && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		a.view.setHolder(id, &holder{Member: "gone"}, 1)
	}
	if got := a.view.orphans(a.held.member(), a.held.session); len(got) != 0 {
		t.Errorf("a node without the label takes %q", got)
	}
	b.view.setHolder("s", &holder{Member: "gone"}, 1)
	if got := b.view.orphans(b.held.member(), b.held.session); len(got) != 1 {
		t.Errorf("the node with the label takes %q", got)
	}
	if err := b.release(t.Context(), "s"); err != nil || b.Needs("s") != nil {
		t.Errorf("a deleted session leaves %v, %v", b.Needs("s"), err)
	}
}

// A node that drains takes no sessions of others, unless all drain; what it creates goes elsewhere.
func TestDrain(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	a, _ := join(t, server, "a")
	b, _ := join(t, server, "b")
	place := func() Owner {
		o, _ := a.Place("s", nil)
		return o
	}
	if place() != (Owner{Node: "a", Address: "a:1", Here: true}) {
		t.Errorf("a new session is placed at %v", place())
	}
	drains := func(n *Node, name string, want bool) {
		t.Helper()
		for tick := time.NewTicker(time.Millisecond); t.Context().Err() == nil; <-tick.C {
			for _, m := range n.Members() {
				if m.Node == name && m.Draining == want {
					return
				}
			}
		}
	}
	a.Drain(true)
	drains(b, "a", true) // long before the next renewal of the lease
	if place().Node != "b" {
		t.Errorf("at a node that drains a new session is placed at %v", place())
	}
	if m, ok := b.Heir("s"); ok {
		t.Errorf("the heir is %v, which drains", m)
	}
	if m, ok := a.Heir("s"); !ok || m.Node != "b" {
		t.Errorf("the heir of the node that drains is %v", m)
	}
	b.Drain(true)
	drains(a, "b", true)
	if !place().Here {
		t.Error("where all drain, a new session is not placed at all")
	}
	a.Drain(false)
	drains(b, "a", false)
	if m, ok := b.Heir("s"); !ok || m.Node != "a" {
		t.Errorf("after the drain the heir is %v", m)
	}
}

// A node joins others whose version is at most one away, and says why it does not join the rest.
func TestVersions(t *testing.T) {
	t.Parallel()
	for version, joins := range map[int]bool{
		protocol - 2: false, protocol - 1: true, protocol: true, protocol + 1: true, protocol + 2: false,
	} {
		server := natstest.Start(t)
		first, _ := join(t, server, "first")
		kv, err := server.JetStream().KeyValue(t.Context(), "test-nodes")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Create(t.Context(), "other", encode(member{Protocol: version, Node: "other"})); err != nil {
			t.Fatal(err)
		}
		for tick := time.NewTicker(time.Millisecond); len(first.Members()) < 2; {
			<-tick.C
		}
		n, err := Join(t.Context(), Config{
			JetStream: server.JetStream(), Cluster: "test", Name: "n", Address: "n:1", TTL: testTTL,
		})
		if (err == nil) != joins {
			t.Errorf("version %d: %v", version, err)
		}
		if err != nil && !strings.Contains(err.Error(), `"other"`) {
			t.Errorf("version %d: the error %v does not name the replica", version, err)
		}
		if n != nil {
			n.Close(t.Context())
		}
	}
}
