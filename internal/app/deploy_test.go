package app

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/internal/setting"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// The settings and the policy of the manifests, and of all that the chart can render, are good ones.
func TestDeployedSettings(t *testing.T) {
	t.Parallel()
	const golden = "../../deploy/helm/copilot-grpc/ci/golden/"
	for name, files := range map[string][]string{
		"one server":                  {"../../deploy/kubernetes/config.yaml", "../../deploy/kubernetes/statefulset.yaml"},
		"replicas":                    {"../../deploy/kubernetes-cluster/config.yaml", "../../deploy/kubernetes-cluster/statefulset.yaml"},
		"one server, every option":    {golden + "every-single.yaml"},
		"replicas, with every option": {golden + "every-cluster.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text strings.Builder
			for _, file := range files {
				text.WriteString("\n---\n" + readText(t, file))
			}
			checkDeployed(t, text.String())
		})
	}
}

// podAddress is the address by which replicas reach a pod.
var podAddress = regexp.MustCompile(`- name: COPILOT_GRPC_NODE_ADDRESS\n +value: "\$\(POD_NAME\)\.(copilot-grpc-node:\d+)"\n`)

func checkDeployed(t *testing.T, manifests string) {
	t.Helper()
	var manifest struct{ Data map[string]string }
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		if strings.Contains(document, "\n  config.yaml: |\n") {
			if err := yaml.Unmarshal([]byte(document), &manifest); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := DefaultConfig()
	l := setting.NewLoader(c.Table(), EnvPrefix)
	if err := l.Load(func(string) string { return "" }, "config.yaml",
		[]byte(manifest.Data["config.yaml"])); err != nil {
		t.Fatal(err)
	}
	if c.Cluster.on() {
		address := podAddress.FindStringSubmatch(manifests)
		if address == nil {
			t.Fatal("the replicas have no address")
		}
		c.Cluster.Address = "copilot-grpc-0." + address[1]
	}
	if c.AdminListen != "" && strings.Contains(manifests, "- name: COPILOT_GRPC_ADMIN_TOKEN\n") {
		c.AdminToken = "a token from a secret"
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	used := []string{c.TLSCert, c.Policy, strings.TrimPrefix(c.Listen[0], "unix:")}
	if c.Cluster.on() {
		used = append(used, c.Cluster.Credentials, c.Cluster.RootCA, c.Cluster.Cert)
	}
	if c.TLSClientCA != "" {
		used = append(used, c.TLSClientCA)
	}
	for _, file := range used {
		path := filepath.Dir(file)
		if !strings.Contains(manifests, "mountPath: "+path+"}") && !strings.Contains(manifests, "mountPath: "+path+",") {
			t.Errorf("nothing is mounted at %q", path)
		}
	}
	dir := t.TempDir()
	policyFile, tokens := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "tokens.txt")
	text := strings.ReplaceAll(manifest.Data["policy.yaml"], "/etc/copilot-grpc-tokens/tokens.txt", tokens)
	for path, content := range map[string]string{
		policyFile: text, tokens: "acme-dashboard " + strings.Repeat("0", 64) + "\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := policy.Load(policyFile, time.Now); err != nil {
		t.Error(err)
	}
}

// The image has the CLI that is pinned.
func TestImageHasThePinnedCLI(t *testing.T) {
	t.Parallel()
	if text := readText(t, "../../deploy/Dockerfile"); !strings.Contains(text,
		"ARG CLI_VERSION="+clibin.PinnedVersion+"\n") {
		t.Errorf("the Dockerfile has not version %s of the CLI", clibin.PinnedVersion)
	}
}

// The chart's schema has every setting, except secrets and those that the chart itself sets.
func TestChartSettings(t *testing.T) {
	t.Parallel()
	own := strings.Fields("listen web web_listen web_url web_origins tls_cert tls_key tls_client_ca policy drain_grace " +
		"admin_listen admin_wide cluster cluster_name cluster_creds cluster_ca cluster_lease node_name node_listen " +
		"node_address node_cert node_key node_ca")
	var want []string
	c := DefaultConfig()
	for _, row := range c.Table().All() {
		if !row.Secret && !slices.Contains(own, row.Key) {
			want = append(want, row.Key)
		}
	}
	var schema struct {
		Defs struct {
			Config struct {
				Properties map[string]any `json:"properties"`
			} `json:"config"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(readText(t, "../../deploy/helm/copilot-grpc/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(schema.Defs.Config.Properties)); !slices.Equal(got, want) {
		t.Errorf("$defs.config of values.schema.json has\n%v\nthe server\n%v", got, want)
	}
}
