package natsstore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natsstore"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

// A cluster loses the server that leads the stream in the middle of writes. Every acknowledged write is there, in
// order, and the owner goes on.
func TestLeaderDies(t *testing.T) {
	t.Parallel()
	nodes := natstest.Cluster(t, 3)
	s := open(t, nodes[0], "c")
	js, err := s.JetStream().Stream(t.Context(), "c_session")
	must(t, err)
	leader := js.CachedInfo().Cluster.Leader
	var other *natstest.Server // the store stays connected to it
	var victim *natstest.Server
	for i, n := range nodes {
		if name := fmt.Sprintf("n%d", i+1); name == leader {
			victim = n
		} else {
			other = n
		}
	}
	s = open(t, other, "c")
	o := session(t, s, "s", 1)
	box := o.Outbox()
	want := ""
	for i := range 40 {
		if i == 20 {
			victim.Stop()
		}
		line := fmt.Sprintf("%d\n", i)
		want += line
		if err := box.Save([]byte(want)); err != nil {
			t.Logf("save %d: %v", i, err)
			must(t, box.Save([]byte(want)))
		}
	}
	if got, err := session(t, s, "s", 2).Outbox().Load(); err != nil || string(got) != want {
		t.Errorf("the file is %q, %v, want %q", got, err, want)
	}
}

// An account to which the system account exports the servers' settings sees when they write to their disks.
func TestSyncIsSeen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "server.conf")
	must(t, os.WriteFile(path, []byte(`
		system_account: SYS
		no_auth_user: app
		accounts {
			SYS { exports = [{ service: "$SYS.REQ.SERVER.PING.JSZ", response_type: stream }] }
			APP {
				jetstream: enabled
				users = [{ user: app, password: pw }]
				imports = [{ service: { account: SYS, subject: "$SYS.REQ.SERVER.PING.JSZ" } }]
			}
		}`), 0o600))
	exported := func(o *server.Options) {
		parsed, err := server.ProcessConfigFile(path)
		must(t, err)
		o.Accounts, o.Users, o.SystemAccount, o.NoAuthUser =
			parsed.Accounts, parsed.Users, parsed.SystemAccount, parsed.NoAuthUser
	}
	for want, options := range map[natsstore.Sync][]natstest.Option{
		natsstore.SyncUnknown:  nil,
		natsstore.SyncInterval: {exported},
		natsstore.SyncAlways:   {exported, natstest.SyncAlways},
	} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			if r := open(t, natstest.Start(t, options...), "c").Recipe(); r.Sync != want {
				t.Errorf("the servers are seen as %+v, want %q", r, want)
			}
		})
	}
}
