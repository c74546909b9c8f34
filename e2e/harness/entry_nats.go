//go:build nats

package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// The names of the replicas.
const (
	entryNode = "entry"
	ownerNode = "owner"
)

// pair is what the two replicas of a host have in common.
type pair struct {
	host *Host
	nats *natstest.Server
	ca   *servertest.CA
}

// serveAtEntry starts two replicas. The tests' clients reach the one that leaves all sessions to the other.
func (h *Host) serveAtEntry(ctx context.Context, settings app.Config, options []app.Option) error {
	p := newPair(h)
	entry := p.entry(&settings)
	p.join(&settings, ownerNode)
	owner, err := h.run(ctx, settings, options)
	if err != nil {
		return err
	}
	a, err := h.run(ctx, entry, options)
	if err != nil {
		return err
	}
	h.reach(a)
	h.FrontHome, h.owner = entry.Home, owner.Target()
	return leaveSessions(ctx, a)
}

// newPair starts what the replicas need.
func newPair(h *Host) *pair {
	tb := hostTB{host: h}
	return &pair{h, natstest.Start(tb, natstest.Listen, natstest.SyncAlways), servertest.NewCA(tb)}
}

// join makes the server of some settings a replica.
func (p *pair) join(settings *app.Config, node string) {
	files := p.ca.Issue(hostTB{host: p.host})
	settings.Cluster = app.Cluster{
		URL: p.nats.URL(), Unsafe: true, Node: node, Listen: FreeAddress(hostTB{host: p.host}), Lease: time.Minute,
		Cert: files.CertFile, Key: files.KeyFile, CA: files.CAFile,
	}
}

// entry returns the settings of the entry replica: the owner's, but for what each process has for itself.
func (p *pair) entry(owner *app.Config) app.Config {
	settings := *owner
	settings.Listen = slices.Clone(owner.Listen)
	settings.Listen[0] = "unix:" + filepath.Join(p.host.Dir, "e")
	settings.Home = filepath.Join(p.host.Dir, "entry-copilot")
	if owner.DataDir != "" {
		settings.DataDir = filepath.Join(p.host.Dir, "entry-data")
	}
	p.join(&settings, entryNode)
	return settings
}

// leaveSessions makes the entry replica leave all sessions to the other one.
func leaveSessions(ctx context.Context, entry *app.App) error {
	c, err := copilot.Dial(ctx, entry.Target())
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // it has done its work
	_, err = c.Runtimes().DrainNode(ctx, &bridgev1.DrainNodeRequest{Node: entryNode})
	return err
}

// hostTB is the testing.TB of what ends with a host.
type hostTB struct {
	testing.TB // nil

	host *Host
}

// Helper implements testing.TB.
func (hostTB) Helper() {}

// Context implements testing.TB.
func (hostTB) Context() context.Context { return context.Background() }

// Cleanup implements testing.TB.
func (t hostTB) Cleanup(f func()) { t.host.onClose(func() error { f(); return nil }) }

// TempDir implements testing.TB.
func (t hostTB) TempDir() string {
	dir, err := os.MkdirTemp(t.host.Dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Fatal implements testing.TB.
func (hostTB) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// Fatalf implements testing.TB.
func (hostTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
