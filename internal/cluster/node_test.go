package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend/backendtest"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

// testTTL is the lease of the nodes of tests.
const testTTL = 4 * time.Second

// join makes a node with a separate connection, which cut closes.
func join(t testing.TB, server *natstest.Server, name string) (n *Node, cut func()) {
	t.Helper()
	js := server.JetStream()
	n, err := Join(t.Context(), Config{
		JetStream: js, Cluster: "test", Name: name, Address: name + ":1", TTL: testTTL,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = n.Close(ctx) // its connection may be cut
	})
	return n, js.Conn().Close
}

// acquireSoon acquires a session when its owner is over.
func acquireSoon(t testing.TB, n *Node, session string) backend.Lease {
	t.Helper()
	for t.Context().Err() == nil {
		l, err := n.Acquire(t.Context(), session)
		if err == nil {
			return l
		}
		if !errors.Is(err, backend.ErrOwned) {
			t.Fatal(err)
		}
		<-n.view.changed
	}
	t.Fatal("the session stays owned")
	return nil
}

// afterDeath waits for the end of a member before it acquires.
type afterDeath struct {
	t testing.TB
	*Node
}

func (a afterDeath) Acquire(_ context.Context, session string) (backend.Lease, error) {
	return acquireSoon(a.t, a.Node, session), nil
}

func TestOwners(t *testing.T) {
	t.Parallel()
	backendtest.Owners(t, func(t testing.TB) backendtest.Ownership {
		server := natstest.Start(t)
		n, cut := join(t, server, "first")
		return backendtest.Ownership{Owners: n, Fail: func() backend.Owners {
			next, _ := join(t, server, "second")
			cut()
			return afterDeath{t, next}
		}}
	})
}

// A node that cannot renew has ended the leases of its sessions before another node can have one.
func TestLostBeforeTheNext(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	old, cut := join(t, server, "old")
	next, _ := join(t, server, "next")
	first, err := old.Acquire(t.Context(), "s")
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
		<-first.Lost()
		lostAt <- uptime()
	}()
	cut()
	second := acquireSoon(t, next, "s")
	acquiredAt := uptime()
	if second.Term() <= first.Term() {
		t.Errorf("the term %d follows %d", second.Term(), first.Term())
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
	if _, err := old.Acquire(t.Context(), "other"); !errors.Is(err, backend.ErrLost) {
		t.Errorf("a node without a lease acquires a session: %v", err)
	}
}

// A member that was fenced loses its lease at its next renewal, and the node joins again as another member.
func TestFencedMemberLeaves(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	n, _ := join(t, server, "n")
	l, err := n.Acquire(t.Context(), "s")
	if err != nil {
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
	<-l.Lost()
	for tick := time.NewTicker(10 * time.Millisecond); !n.Valid(); {
		<-tick.C
	}
	again, err := n.Acquire(t.Context(), "s")
	if err != nil || again.Term() <= l.Term() {
		t.Errorf("acquired again with %v", err)
	}
}

// A living member is not fenced, and a session that is released is free at once.
func TestRelease(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	a, _ := join(t, server, "a")
	b, _ := join(t, server, "b")
	l, err := a.Acquire(t.Context(), "tenant/s")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := b.Acquire(t.Context(), "tenant/s"); !errors.Is(err, backend.ErrOwned) {
			t.Errorf("acquired from a living member: %v", err)
		}
	}
	if peers := b.Peers(); !slices.Equal(peers, []Owner{{Node: "a", Address: "a:1"}}) {
		t.Errorf("the peers are %v", peers)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o, err := b.Verify(t.Context(), "tenant/s"); err != nil || o != (Owner{}) {
		t.Errorf("a released session is at %v, %v", o, err)
	}
	if _, err := b.Acquire(t.Context(), "tenant/s"); err != nil {
		t.Error(err)
	}
	other, err := a.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-other.Lost()
	if _, err := b.Acquire(t.Context(), "x"); err != nil {
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
	next, err := n.Acquire(t.Context(), "s")
	if err != nil || next.Term() <= l.Term() {
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
			_ = n.Close(t.Context())
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
		if _, err := dead.Acquire(t.Context(), s); err != nil {
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
			_, err := next.Acquire(ctx, session)
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
