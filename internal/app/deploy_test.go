package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/internal/setting"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// The settings and the policy of the manifests are good ones.
func TestDeployedSettings(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"kubernetes", "kubernetes-cluster"} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			checkDeployed(t, "../../deploy/"+folder)
		})
	}
}

func checkDeployed(t *testing.T, folder string) {
	t.Helper()
	var manifest struct{ Data map[string]string }
	if err := yaml.Unmarshal([]byte(readText(t, folder+"/config.yaml")), &manifest); err != nil {
		t.Fatal(err)
	}
	c := DefaultConfig()
	l := setting.NewLoader(c.Table(), EnvPrefix)
	if err := l.Load(func(string) string { return "" }, "config.yaml",
		[]byte(manifest.Data["config.yaml"])); err != nil {
		t.Fatal(err)
	}
	set := readText(t, folder+"/statefulset.yaml")
	if c.Cluster.on() {
		const pod = "$(POD_NAME).copilot-grpc-node:7801"
		if !strings.Contains(set, `{name: COPILOT_GRPC_NODE_ADDRESS, value: "`+pod+`"}`) {
			t.Errorf("the replicas have not the address %s", pod)
		}
		c.Cluster.Address = strings.Replace(pod, "$(POD_NAME)", "copilot-grpc-0", 1)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	used := []string{c.TLSCert, c.Policy, strings.TrimPrefix(c.Listen[0], "unix:")}
	if c.Cluster.on() {
		used = append(used, c.Cluster.Credentials, c.Cluster.RootCA, c.Cluster.Cert)
	}
	for _, file := range used {
		path := filepath.Dir(file)
		if !strings.Contains(set, "mountPath: "+path+"}") && !strings.Contains(set, "mountPath: "+path+",") {
			t.Errorf("nothing is mounted at %q", path)
		}
	}
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(manifest.Data["policy.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := policy.Load(path, time.Now); err != nil {
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
