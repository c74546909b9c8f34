package cluster

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

// A node is one of the members when it has joined.
func TestNodeKnowsItself(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	for range 20 {
		n, _ := join(t, server, "n")
		if all := n.Members(); !slices.ContainsFunc(all, func(m Member) bool { return m.ID == n.held.member() }) {
			t.Fatalf("the members are %v", all)
		}
		n.Close(t.Context())
	}
}

// electing is a bucket that does not take the next deletions.
type electing struct {
	jetstream.KeyValue
	refuses int
}

// Delete implements jetstream.KeyValue.
func (e *electing) Delete(ctx context.Context, key string, opts ...jetstream.KVDeleteOpt) error {
	if e.refuses--; e.refuses >= 0 {
		return jetstream.ErrNoStreamResponse
	}
	return e.KeyValue.Delete(ctx, key, opts...)
}

// A node that leaves while NATS elects a leader ends its lease when there is one.
func TestCloseDuringAnElection(t *testing.T) {
	t.Parallel()
	n, _ := join(t, natstest.Start(t), "n", func(c *Config) { c.TTL = time.Minute })
	id := n.held.member()
	n.stop()
	n.wg.Wait()
	n.nodes = &electing{n.nodes, 2}
	n.Close(t.Context())
	if _, err := n.nodes.Get(t.Context(), id); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the lease is not over: %v", err)
	}
}
