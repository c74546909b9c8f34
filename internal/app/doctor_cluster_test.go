package app

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// Doctor says what a replica would find of the NATS servers, and changes nothing there.
func TestDoctorTellsOfTheCluster(t *testing.T) {
	t.Parallel()
	nats := natstest.Start(t, natstest.Listen)
	away := natstest.Start(t, natstest.Listen)
	away.Stop()
	files := servertest.NewCA(t).Issue(t)
	for name, test := range map[string]struct {
		change func(*Cluster)
		level  runtime.Level
		text   string
	}{
		"one server":          {func(*Cluster) {}, runtime.LevelError, "streams have 1 replica"},
		"one server accepted": {func(k *Cluster) { k.Unsafe = true }, runtime.LevelWarning, "copies of each stream: 1"},
		"no server":           {func(k *Cluster) { k.URL = away.URL() }, runtime.LevelError, "no connection to"},
		"a server without TLS": {
			func(k *Cluster) { k.URL = strings.Replace(k.URL, "nats:", "tls:", 1) },
			runtime.LevelError, "no connection to",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := base(t)
			c.Cluster = Cluster{
				URL: nats.URL(), Node: "n", Listen: "127.0.0.1:7801",
				Cert: files.CertFile, Key: files.KeyFile, CA: files.CAFile,
			}
			test.change(&c.Cluster)
			f := findingOf(Diagnose(t.Context(), c, false), "cluster")
			if f.Level != test.level || !strings.Contains(f.Text, test.text) || f.Remedy == "" {
				t.Errorf("doctor says %+v, want %v with %q", f, test.level, test.text)
			}
		})
	}
	streams := nats.JetStream().StreamNames(t.Context())
	for name := range streams.Name() {
		t.Errorf("doctor has created the stream %q", name)
	}
	if err := streams.Err(); err != nil {
		t.Error(err)
	}
}

// A replica's files are checked before it starts, and are reported like the others.
func TestClusterFilesAreChecked(t *testing.T) {
	t.Parallel()
	c := base(t)
	files := servertest.NewCA(t).Issue(t)
	strange := servertest.NewCA(t).Issue(t)
	c.Cluster = Cluster{
		URL: "nats://127.0.0.1:1", Node: "n", Listen: "127.0.0.1:7801",
		Cert: files.CertFile, Key: files.KeyFile, CA: strange.CAFile,
	}
	f := findingOf(Diagnose(t.Context(), c, false), "files")
	if f.Level != runtime.LevelError || !strings.Contains(f.Text, "node_cert") {
		t.Errorf("doctor says %+v of a certificate that another CA has signed", f)
	}
	c.Cluster.Credentials = filepath.Join(t.TempDir(), "creds")
	paths := map[string]string{}
	for _, p := range c.trustedPaths() {
		paths[p.setting] = p.path
	}
	for setting, want := range map[string]string{
		"node_cert": files.CertFile, "node_key": files.KeyFile, "node_ca": strange.CAFile,
		"cluster_creds": c.Cluster.Credentials,
	} {
		if paths[setting] != want {
			t.Errorf("the permissions of %s are not checked: %q", setting, paths[setting])
		}
	}
}
