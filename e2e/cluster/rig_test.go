package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// lease is the replicas' lease: long enough for a busy machine.
const lease = "8s"

// replicas starts servers that are one cluster, and its NATS server. Each has a separate home of the CLI. More returns
// further flags of a replica.
func replicas(
	st *harness.Scripted, n int, more ...func(i int) []string,
) (replicas []*harness.Daemon, nats *natstest.Server) {
	return replicasOf(st, "", n, more...)
}

// replicasOf is replicas with another program than the one that is tested.
func replicasOf(
	st *harness.Scripted, path string, n int, more ...func(i int) []string,
) (replicas []*harness.Daemon, nats *natstest.Server) {
	st.T.Helper()
	nats = natstest.Start(st.T, natstest.Listen, natstest.SyncAlways)
	return replicasAt(st, path, []string{"--cluster", nats.URL(), "--cluster-unsafe"}, n, more...), nats
}

// replicasAt is replicasOf with the flags that name the NATS servers.
func replicasAt(
	st *harness.Scripted, path string, storage []string, n int, more ...func(i int) []string,
) (replicas []*harness.Daemon) {
	st.T.Helper()
	ca := servertest.NewCA(st.T)
	provider := writeProvider(st)
	for i := range n {
		files := ca.Issue(st.T)
		flags := append(slices.Clone(storage),
			"--cluster-lease", lease,
			"--node-name", fmt.Sprintf("n%d", i+1), "--node-listen", harness.FreeAddress(st.T),
			"--node-cert", files.CertFile, "--node-key", files.KeyFile, "--node-ca", files.CAFile,
			"--provider", "ours="+provider,
		)
		for _, f := range more {
			flags = append(flags, f(i)...)
		}
		replicas = append(replicas, harness.NewDaemonOf(st, path, flags...))
	}
	return replicas
}

// writeProvider writes the file of a model provider that all replicas have: a session that names it needs no secrets
// from its caller when it continues elsewhere.
func writeProvider(st *harness.Scripted) string {
	st.T.Helper()
	text, err := json.Marshal(map[string]any{
		"type": "openai", "wireApi": "completions", "baseUrl": st.Config().GetProvider().GetBaseUrl(), "apiKey": "k",
	})
	if err != nil {
		st.T.Fatal(err)
	}
	file := filepath.Join(st.T.TempDir(), "provider.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		st.T.Fatal(err)
	}
	return file
}

// create makes a session at a replica, with a turn.
func create(d *harness.Daemon, id string) {
	d.T.Helper()
	config := d.Config()
	config.Provider = nil
	_, err := d.Client.Sessions().CreateSession(d.Ctx,
		&bridgev1.CreateSessionRequest{SessionId: id, Config: config, ProviderRef: "ours"})
	if err != nil {
		d.T.Fatal(err)
	}
	d.SayTo(id, "first of "+id)
}

// answer returns the model's answer to a prompt.
func answer(d *harness.Daemon, id, prompt string) string {
	d.T.Helper()
	outcome, err := d.Client.Session(id).SendAndWait(d.Ctx, prompt)
	if err == nil {
		err = outcome.Err()
	}
	if err != nil {
		d.T.Fatalf("the turn of %q in %s: %v", prompt, id, err)
	}
	return outcome.Text()
}

// conversation is what the model was sent of a session in the request with a prompt.
func conversation(d *harness.Daemon, prompt string) string {
	requests := d.Model.ModelRequests()
	for _, r := range slices.Backward(requests) {
		if text := string(r.Body); strings.Contains(text, prompt) {
			return text
		}
	}
	return ""
}

// durable returns the durable events of a session: their types with their positions, as a replica gives them.
func durable(d *harness.Daemon, id string) (out []string) {
	d.T.Helper()
	ids, at := d.Durable(id)
	for i, id := range ids {
		out = append(out, fmt.Sprintf("%s at %d/%d", id, at[i].GetEpoch(), at[i].GetSeq()))
	}
	return out
}
