package cluster

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

// rights are the rights of a replica's user in docs/cluster.md, for a cluster with the name test.
var rights = server.Permissions{
	Publish: &server.SubjectPermission{Allow: []string{
		"test.>", "$KV.test-nodes.>", "$KV.test-owners.>", "$JS.API.>", "$JS.FC.>",
	}},
	Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
}

// The rights that the documentation names are enough for a node, also if there are so many sessions that NATS waits for
// the node while it reads their owners.
func TestRights(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range append(rights.Publish.Allow, rights.Subscribe.Allow...) {
		if text := strings.Replace(subject, "test", "copilot", 1); !strings.Contains(string(page), "`"+text+"`") {
			t.Errorf("docs/cluster.md does not name the right to %q", text)
		}
	}
	s := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: "admin"},
			{Username: "replica", Password: "replica", Permissions: &rights},
		}
		o.NoAuthUser = "replica"
	})
	join(t, s, "first") // makes the buckets
	const sessions = 20000
	admin, err := nats.Connect("", nats.InProcessServer(s), nats.UserInfo("admin", "admin"))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	value := encode(holder{Node: "gone", Address: strings.Repeat("x", 200)})
	// With the default of 4,000 a server that is busy for 200 ms refuses the next one.
	js, err := jetstream.New(admin, jetstream.WithPublishAsyncMaxPending(sessions))
	if err != nil {
		t.Fatal(err)
	}
	for i := range sessions {
		if _, err := js.PublishAsync("$KV.test-owners."+keyOf(fmt.Sprint("s", i)), value); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		t.Fatal("the owners are not stored")
	}
	n, _ := join(t, s, "second")
	n.view.mu.Lock()
	known := len(n.view.holders)
	n.view.mu.Unlock()
	if known != sessions {
		t.Errorf("the node knows the owners of %d sessions", known)
	}
	if err := n.cfg.JetStream.Conn().LastError(); err != nil {
		t.Error(err)
	}
}

// Two clusters on one account know nothing of each other, also if the name of one begins with that of the other: each
// has its own members, and its own owner of a session.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	for _, name := range []string{"test", "test-2"} {
		n, _ := join(t, s, "n", func(c *Config) { c.Cluster = name })
		if all := n.Members(); len(all) != 1 || all[0].ID != n.held.member() {
			t.Errorf("the members of the cluster %s are %v", name, all)
		}
		if _, err := n.acquire(t.Context(), "s"); err != nil {
			t.Errorf("in the cluster %s: %v", name, err)
		}
	}
}
