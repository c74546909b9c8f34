package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	stored "github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natsstore"
	"github.com/copilot-grpc/copilot-grpc/internal/setting"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
)

// Cluster makes the server a replica of a cluster on NATS JetStream (docs/cluster.md). With an empty URL it is alone.
// Its rows have the meaning of each setting.
type Cluster struct {
	URL                 string
	Name                string
	Credentials, RootCA string
	Node                string
	Listen, Address     string
	Cert, Key, CA       string
	Lease               time.Duration
	Unsafe              bool
}

func (k *Cluster) on() bool { return k.URL != "" }

func (k *Cluster) rows() []setting.Row {
	return []setting.Row{
		fixed("cluster", &k.URL, "`URL` of the NATS servers, nats://HOST:PORT or tls://HOST:PORT, with commas between "+
			"several: the server is one replica of a cluster, which stores its sessions there and not in data_dir "+
			"(docs/cluster.md); or \"embedded\": one server inside this process, for trying it out alone, in a "+
			"program built with -tags nats"),
		fixed("cluster_name", &k.Name, "`name` that begins the names of everything the cluster stores; other clusters "+
			"of the same NATS account have other names (default: copilot)"),
		fixed("cluster_creds", &k.Credentials, "`file` with the credentials for NATS"),
		fixed("cluster_ca", &k.RootCA, "PEM `file` with the CAs of the NATS servers (default: the machine's)"),
		fixed("cluster_unsafe", &k.Unsafe, "accept NATS servers that can lose acknowledged data, with a warning"),
		fixed("cluster_lease", &k.Lease, "time after which the sessions of a replica that does not answer go to "+
			"others; the same in all replicas"),
		fixed("node_name", &k.Node, "`name` of this replica in the cluster; no two may have the same (default: the "+
			"host name)"),
		fixed("node_listen", &k.Listen, "`address` on which other replicas call this one, HOST:PORT"),
		fixed("node_address", &k.Address, "`address` by which other replicas reach node_listen, HOST:PORT (default: "+
			"node_listen)"),
		fixed("node_cert", &k.Cert, "PEM `file` with this replica's certificate; reloaded when it changes"),
		fixed("node_key", &k.Key, "PEM `file` with the private key of node_cert; reloaded when it changes"),
		fixed("node_ca", &k.CA, "PEM `file` with the CA that signs the certificates of replicas, and of nothing else: "+
			"whoever has such a certificate can act as any caller; reloaded when it changes"),
	}
}

// check checks the settings of the cluster, and completes them. dial is the address of a CLI server, "" for none.
func (k *Cluster) check(dial string) error {
	if !k.on() {
		if *k != (Cluster{Lease: k.Lease, Unsafe: k.Unsafe}) {
			return wrongf("cluster", "the other settings of the cluster need it")
		}
		return nil
	}
	if dial != "" {
		return wrongf("cluster", "sessions of a CLI server (dial) cannot be moved to other replicas")
	}
	if k.Node == "" {
		name, err := os.Hostname()
		if err != nil {
			return wrong("node_name", err)
		}
		k.Node = name
	}
	if k.embedded() {
		return k.checkEmbedded()
	}
	// The value of the setting is printed and logged.
	for _, server := range strings.Split(k.URL, ",") {
		if u, err := url.Parse(strings.TrimSpace(server)); err == nil && u.User != nil {
			return wrongf("cluster", "a URL must not contain credentials: use cluster_creds")
		}
	}
	for _, file := range []struct{ key, path string }{
		{"node_cert", k.Cert}, {"node_key", k.Key}, {"node_ca", k.CA},
	} {
		if file.path == "" {
			return wrongf(file.key, "a replica of a cluster needs it")
		}
	}
	if _, port, err := net.SplitHostPort(k.Listen); err != nil || port == "0" {
		return wrongf("node_listen", "%q is not HOST:PORT with a fixed port", k.Listen)
	}
	k.Address = cmp.Or(k.Address, k.Listen)
	if host, _, err := net.SplitHostPort(k.Address); err != nil || host == "" || net.ParseIP(host).IsUnspecified() {
		return wrongf("node_address", "other replicas cannot reach %q: give HOST:PORT", k.Address)
	}
	return nil
}

// attrs are what each line of a replica's logs has.
func (k *Cluster) attrs() []slog.Attr {
	if !k.on() {
		return nil
	}
	return []slog.Attr{slog.String("node", k.Node)}
}

// returnTimeout is how long the handlers of cancelled calls may take to return. For a replica it exceeds the time that
// NATS may take to store something, which nothing can interrupt. For a server alone it is 0, the server's default.
func (k *Cluster) returnTimeout() time.Duration {
	if k.URL == "" {
		return 0
	}
	return natsstore.CallTimeout + callGrace
}

func (k *Cluster) storage(log *slog.Logger) natsstore.Config {
	return natsstore.Config{
		URL: k.URL, Cluster: k.Name, Credentials: k.Credentials, CA: k.RootCA, Unsafe: k.Unsafe || k.embedded(),
		Logger: log,
	}
}

func (k *Cluster) tls() forward.TLS {
	return forward.TLS{CertFile: k.Cert, KeyFile: k.Key, CAFile: k.CA}
}

// finding tells whether the NATS servers can be used.
func (k *Cluster) finding(ctx context.Context) runtime.Finding {
	const subject = "cluster"
	if k.embedded() {
		return warn(subject, "the NATS server is inside the process: there is one copy of the data, on this disk, and no "+
			"other replica", "for more than a trial, run three NATS servers (docs/cluster.md)")
	}
	recipe, err := natsstore.Check(ctx, k.storage(nil))
	if err != nil {
		return failed(subject, err, "docs/cluster.md says what the NATS servers need")
	}
	text := fmt.Sprintf("NATS %s; copies of each stream: %d; sync_interval: %s", recipe.Version, recipe.Replicas,
		recipe.Sync)
	if len(recipe.Risks) > 0 {
		return warn(subject, text+"; "+strings.Join(recipe.Risks, "; "),
			"mend it, or keep cluster_unsafe and accept that data can be lost")
	}
	return fine(subject, "%s", text)
}

// errReplaced ends a replica whose sessions others may have.
var errReplaced = errors.New("this replica has lost its sessions to others, and ends: start it again")

// member is this replica of a cluster: the parts that are more than a server alone has. It is a forward.Locator: it knows
// the owners of sessions by the names that callers use.
type member struct {
	store     *natsstore.Store
	node      *cluster.Node
	directory *cluster.Directory
	folders   *cluster.Folders
	bridge    *bridge.Bridge
	mover     *mover // set by lead
	elsewhere elsewhere
}

// join makes the server a replica. own is the profile of the host's own tenant.
func (a *App) join(ctx context.Context, own runtime.Profile, tidyEvery time.Duration) (*member, error) {
	k := &a.config.Cluster
	storage := k.storage(a.logger)
	if k.embedded() {
		nats, err := a.embed()
		if err != nil {
			return nil, err
		}
		storage.InProcess = nats
	}
	store, err := natsstore.Open(ctx, storage)
	if err != nil {
		return nil, err
	}
	a.closers.add("storage of the cluster", func(context.Context) error { store.Close(); return nil })
	node, err := cluster.Join(ctx, cluster.Config{
		JetStream: store.JetStream(), Cluster: store.Cluster(), Name: k.Node, Address: k.Address, TTL: k.Lease,
		Labels: a.config.NodeLabels, Replicas: store.Replicas(), Alone: k.embedded(), Logger: a.logger,
	})
	if err != nil {
		return nil, err
	}
	a.closers.add("lease of the replica", func(ctx context.Context) error { node.Close(ctx); return nil })
	writer := journal.NewWriter(journal.WriterConfig{
		// NATS acknowledges what is safe.
		Fsync: journal.FsyncAlways, MaxBytes: a.config.JournalBytes, MaxAge: a.config.JournalAge, TidyEvery: tidyEvery,
		Logger: a.logger,
	})
	a.closers.add("writer of journals", func(context.Context) error { writer.Close(); return nil })
	folders := cluster.NewFolders(store.Blobs(), a.folderOf(own), a.logger)
	a.closers.add("folders of sessions", func(context.Context) error { folders.Flush(); return nil })
	m := &member{store: store, node: node, folders: folders}
	m.directory = cluster.NewDirectory(cluster.DirectoryConfig{
		Node: node, Store: store, Writer: writer, Key: session.Key, Folders: folders,
		NodeLabels: stored.NodeLabels, LostMessages: outbox.LostMessages, Lost: a.replaced,
		Logger: a.logger,
	})
	return m, nil
}

// folderOf returns a function that returns the CLI's folder of a session by its saved state.
func (a *App) folderOf(own runtime.Profile) func(key string, state json.RawMessage) string {
	tenants := a.tenants(own)
	profile := func(tenant string) runtime.Profile {
		if tenant == caller.HostTenant || tenants == nil {
			return own
		}
		t, _ := tenants(tenant)
		return t.Profile
	}
	return func(key string, state json.RawMessage) string { return stored.Folder(key, state, profile) }
}

// replaced ends the server at once: another replica may have its sessions.
func (a *App) replaced(cause error) {
	if a.lost.CompareAndSwap(nil, &cause) {
		a.logger.Error(errReplaced.Error(), slog.Any("error", cause))
		a.abort()
	}
}

// ended returns the reason why the replica ended without a request; nil if it did not.
func (a *App) ended() error {
	if cause := a.lost.Load(); cause != nil {
		return fmt.Errorf("%w: %w", errReplaced, *cause)
	}
	return nil
}

var errLease = errors.New("its lease was not renewed in time")

// lead gives the replica its bridge.
func (m *member) lead(b *bridge.Bridge, log *slog.Logger) {
	m.bridge = b
	m.mover = &mover{member: m, log: log, slots: make(chan struct{}, movesAtOnce), leaving: map[string]chan struct{}{}}
}

// run does the background work of a replica, which ends with the bridge.
func (m *member) run(b *bridge.Bridge, replaced func(error)) {
	lost := m.node.Lost()
	b.Go(func(ctx context.Context) {
		select {
		case <-lost:
			replaced(errLease)
		case <-ctx.Done():
		}
	})
	b.Go(m.folders.Run)
	b.Go(func(ctx context.Context) { m.node.TakeOver(ctx, m.takeOver) })
	b.Go(m.mover.balance)
}

// share counts for the limits of the policy what tenants use at other replicas, until the bridge ends.
func (m *member) share(b *bridge.Bridge) {
	b.Go(func(ctx context.Context) { m.elsewhere.run(ctx, m.node, b.Uses) })
}

// leave hands the sessions over to other replicas when the server stops, for as long as ctx lasts. Sessions in
// use until then, and sessions with credentials, go when the lease ends.
func (m *member) leave(ctx context.Context) {
	m.node.Drain(true)
	if _, err := m.mover.heir(""); err == nil {
		m.mover.empty(ctx, leavePatience)
	}
}

// takeOver claims a session of a replica that has died. One that was not stored yet is removed.
func (m *member) takeOver(ctx context.Context, key string) error {
	found, err := m.claim(ctx, key)
	if err == nil && !found {
		err = m.directory.Remove(key)
	}
	return err
}

// claim opens a session that no replica has. It reports whether it is stored.
func (m *member) claim(ctx context.Context, key string) (bool, error) {
	found, err := m.directory.Stored(ctx, key)
	if err != nil || !found {
		return false, err
	}
	return m.bridge.Load(ctx, key, func() ([]backend.Request, error) {
		return m.directory.RequestsOf(ctx, key)
	})
}

func (m *member) forward(k *Cluster) *forward.Config {
	return &forward.Config{
		Node: k.Node, Listen: k.Listen, TLS: k.tls(), Locator: m,
	}
}

func (m *member) Locate(ctx context.Context, tenant, name string) (forward.Owner, error) {
	key := tenancy.KeyOf(tenant, name)
	if err := m.mover.await(ctx, key); err != nil {
		return forward.Owner{}, err
	}
	return m.ready(ctx, key, m.node.Locate(key))
}

func (m *member) Verify(ctx context.Context, tenant, name string) (forward.Owner, error) {
	key := tenancy.KeyOf(tenant, name)
	if err := m.mover.await(ctx, key); err != nil {
		return forward.Owner{}, err
	}
	owner, err := m.node.Verify(ctx, key)
	if err != nil {
		return forward.Owner{}, err
	}
	return m.ready(ctx, key, owner)
}

// ready returns the owner of a session. It waits for a session that this replica has, but still restores.
func (m *member) ready(ctx context.Context, key string, owner cluster.Owner) (forward.Owner, error) {
	if owner.Here && m.bridge.Store().Get(key) == nil {
		if found, err := m.claim(ctx, key); err != nil || !found {
			return forward.Owner{}, err
		}
	}
	return forward.Owner(owner), nil
}

func (m *member) Claim(ctx context.Context, tenant, name string) error {
	_, err := m.claim(ctx, tenancy.KeyOf(tenant, name))
	if errors.Is(err, cluster.ErrOwned) {
		return fmt.Errorf("%w: %w", forward.ErrTaken, err)
	}
	return err
}

func (m *member) Place(tenant, name string, labels map[string]string) (forward.Owner, error) {
	key := ""
	if name != "" {
		key = tenancy.KeyOf(tenant, name)
	}
	owner, ok := m.node.Place(key, labels)
	if !ok {
		if stored := m.node.Needs(key); stored != nil {
			labels = stored
		}
		return forward.Owner{}, stored.NodesUnfit(labels)
	}
	return forward.Owner(owner), nil
}

func (m *member) Peers() []forward.Owner {
	peers := m.node.Peers()
	out := make([]forward.Owner, len(peers))
	for i, p := range peers {
		out[i] = forward.Owner(p)
	}
	return out
}
