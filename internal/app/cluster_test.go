package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// replica is a valid configuration of a replica.
func replica() Cluster {
	return Cluster{
		URL: "nats://localhost:4222", Node: "n", Listen: "localhost:7801", Cert: "cert", Key: "key", CA: "ca",
	}
}

// Settings of a replica that cannot work are refused, by the name of the setting.
func TestClusterSettings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Cluster)
		dial   string
		key    string
	}{
		"no cluster":           {func(k *Cluster) { k.URL = "" }, "", "cluster"},
		"a CLI server":         {func(*Cluster) {}, "localhost:1", "cluster"},
		"a password":           {func(k *Cluster) { k.URL += ",nats://u:p@host" }, "", "cluster"},
		"a token":              {func(k *Cluster) { k.URL = "nats://secret@host" }, "", "cluster"},
		"no embedded server":   {func(k *Cluster) { *k = Cluster{URL: Embedded} }, "", "cluster"},
		"no certificate":       {func(k *Cluster) { k.Cert = "" }, "", "node_cert"},
		"no key":               {func(k *Cluster) { k.Key = "" }, "", "node_key"},
		"no CA":                {func(k *Cluster) { k.CA = "" }, "", "node_ca"},
		"no listener":          {func(k *Cluster) { k.Listen = "" }, "", "node_listen"},
		"any port":             {func(k *Cluster) { k.Listen = "localhost:0" }, "", "node_listen"},
		"no host":              {func(k *Cluster) { k.Listen = ":7801" }, "", "node_address"},
		"every address":        {func(k *Cluster) { k.Listen = "0.0.0.0:7801" }, "", "node_address"},
		"an address of no one": {func(k *Cluster) { k.Address = "[::]:7801" }, "", "node_address"},
		"no port":              {func(k *Cluster) { k.Address = "host" }, "", "node_address"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := replica()
			test.change(&k)
			err := k.check(test.dial)
			if err == nil || !strings.HasPrefix(err.Error(), test.key+": ") || strings.Contains(err.Error(), "secret") {
				t.Errorf("the error is %v, want one of %s", err, test.key)
			}
		})
	}
}

// The name and the address of a replica have defaults.
func TestClusterDefaults(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	k := replica()
	k.Node = ""
	if err := k.check(""); err != nil || k.Node != host || k.Address != k.Listen {
		t.Errorf("the replica is %+v, %v", k, err)
	}
	k.Listen, k.Address = "0.0.0.0:7801", "host:1"
	if err := k.check(""); err != nil || k.Address != "host:1" {
		t.Errorf("the replica is %+v, %v", k, err)
	}
	if err := new(Cluster).check("localhost:1"); err != nil {
		t.Errorf("a server alone: %v", err)
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
	f := findingOf(Diagnose(t.Context(), c, false), "node_cert")
	if f.Level != runtime.LevelError || !strings.Contains(f.Text, "unknown authority") {
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
