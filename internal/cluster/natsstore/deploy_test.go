package natsstore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natsstore"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// The configuration of deploy/nats is one that a store accepts without a risk: three servers that sync each message,
// with TLS, and a user with the rights of docs/cluster.md. The one of Kubernetes is the same.
func TestDeployedNATS(t *testing.T) {
	t.Setenv("NATS_NAME", "nats-0")
	text, err := os.ReadFile("../../../deploy/nats/nats.conf")
	must(t, err)
	manifest, err := os.ReadFile("../../../deploy/kubernetes-nats/config.yaml")
	must(t, err)
	var m struct{ Data map[string]string }
	must(t, yaml.Unmarshal(manifest, &m))
	if m.Data["nats.conf"] != string(text) {
		t.Error("deploy/kubernetes-nats/config.yaml has another text than deploy/nats/nats.conf")
	}
	dir := t.TempDir()
	files := servertest.NewCA(t).IssueLocal(t)
	for name, path := range map[string]string{
		"tls.crt": files.CertFile, "tls.key": files.KeyFile, "ca.crt": files.CAFile,
	} {
		text = []byte(strings.ReplaceAll(string(text), "/etc/nats-tls/"+name, path))
	}
	must(t, os.Mkdir(filepath.Join(dir, "nats"), 0o700))
	must(t, os.Mkdir(filepath.Join(dir, "nats-accounts"), 0o700))
	conf := filepath.Join(dir, "nats", "nats.conf")
	must(t, os.WriteFile(conf, text, 0o600))
	creds := writeAccounts(t, filepath.Join(dir, "nats-accounts", "accounts.conf"))
	parsed, err := server.ProcessConfigFile(conf)
	must(t, err)
	if parsed.ServerName != "nats-0" || len(parsed.Routes) != 3 || parsed.Cluster.TLSConfig == nil {
		t.Errorf("the server is %q, its routes are %v", parsed.ServerName, parsed.Routes)
	}
	servers := natstest.Cluster(t, 3, func(o *server.Options) {
		own := *o
		again, err := server.ProcessConfigFile(conf) // servers share no options
		must(t, err)
		*o = *again
		o.ServerName, o.Host, o.Port, o.HTTPPort = own.ServerName, own.Host, own.Port, 0
		o.Cluster.Host, o.Cluster.Port, o.Routes = own.Cluster.Host, own.Cluster.Port, own.Routes
		o.StoreDir, o.NoSigs, o.NoLog = own.StoreDir, true, true
	})
	s, err := natsstore.Open(t.Context(), natsstore.Config{
		URL: strings.Replace(servers[0].URL(), "nats://127.0.0.1", "tls://localhost", 1), CA: files.CAFile,
		Credentials: creds,
	})
	must(t, err)
	defer s.Close()
	if r := s.Recipe(); r.Replicas != 3 || r.Sync != natsstore.SyncAlways || len(r.Risks) > 0 {
		t.Errorf("the store found %+v", r)
	}
	must(t, session(t, s, "s", 1).Save(t.Context(), []byte(`1`)))
	if got := savedState(t, s, "s"); got != "1 1" {
		t.Errorf("the state is %s", got)
	}
}

// writeAccounts writes what nsc generate config --mem-resolver does: an operator, the system account, which exports its
// view of the servers' settings, and an account with JetStream. It returns the file with the credentials of a user.
func writeAccounts(t *testing.T, path string) (creds string) {
	t.Helper()
	key := func(create func() (nkeys.KeyPair, error)) (k nkeys.KeyPair, public string) {
		k, err := create()
		must(t, err)
		public, err = k.PublicKey()
		must(t, err)
		return k, public
	}
	operator, operatorID := key(nkeys.CreateOperator)
	_, systemID := key(nkeys.CreateAccount)
	account, accountID := key(nkeys.CreateAccount)
	user, userID := key(nkeys.CreateUser)
	const settings = "$SYS.REQ.SERVER.PING.JSZ"

	system := jwt.NewAccountClaims(systemID)
	system.Exports.Add(&jwt.Export{Name: "settings", Subject: settings, Type: jwt.Service,
		ResponseType: jwt.ResponseTypeStream})
	ours := jwt.NewAccountClaims(accountID)
	ours.Imports.Add(&jwt.Import{Name: "settings", Account: systemID, Subject: settings, Type: jwt.Service})
	ours.Limits.JetStreamLimits = jwt.JetStreamLimits{
		MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
	}
	replica := jwt.NewUserClaims(userID)
	replica.Pub.Allow.Add("copilot.>", "$KV.copilot-nodes.>", "$KV.copilot-owners.>", "$JS.API.>", "$JS.FC.>", settings)
	replica.Sub.Allow.Add("_INBOX.>")
	sign := func(c jwt.Claims, by nkeys.KeyPair) string {
		text, err := c.Encode(by)
		must(t, err)
		return text
	}
	own := jwt.NewOperatorClaims(operatorID)
	own.SystemAccount = systemID
	must(t, os.WriteFile(path, fmt.Appendf(nil,
		"operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {\n  %s: %s\n  %s: %s\n}\n",
		sign(own, operator), systemID, systemID, sign(system, operator), accountID, sign(ours, operator)), 0o600))
	seed, err := user.Seed()
	must(t, err)
	text, err := jwt.FormatUserConfig(sign(replica, account), seed)
	must(t, err)
	creds = filepath.Join(t.TempDir(), "nats.creds")
	must(t, os.WriteFile(creds, text, 0o600))
	return creds
}
