package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each mistake is found, and without one there is nothing to find.
func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	const deploy = "../../../deploy"
	const golden = "helm/copilot-grpc/ci/golden/"
	for name, tc := range map[string]struct {
		file, from, to, want string
	}{
		"none":              {},
		"root":              {"Dockerfile", "USER 10001:10001\n", "", "runs as root"},
		"a release as root": {"package/Dockerfile", "USER 65532:65532\n", "", "runs as root"},
		"no version":        {"Dockerfile", "FROM debian:bookworm-slim", "FROM debian", "no version"},
		"shell form":        {"Dockerfile", `ENTRYPOINT ["copilot-grpc"]`, "ENTRYPOINT copilot-grpc", "exec form"},
		"no instruction":    {"Dockerfile", "STOPSIGNAL", "STOP", "STOP"},
		"sources":           {"Dockerfile", "COPY --from=build /out", "COPY /out", "no stage"},
		"misspelt member":   {"kubernetes/statefulset.yaml", "periodSeconds: 20", "periodSecond: 20", "periodSecond"},
		"a text, no number": {"kubernetes/statefulset.yaml", "replicas: 1", "replicas: one", "replicas"},
		"other labels":      {"kubernetes/service.yaml", "  selector:\n    app.kubernetes.io/name: copilot-grpc\n", "  selector:\n    app.kubernetes.io/name: x\n", "Service selects"},
		"no volume":         {"kubernetes/statefulset.yaml", "- name: tmp\n", "- name: temp\n", `no volume "tmp"`},
		"writable":          {"kubernetes/statefulset.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "more rights"},
		"no preStop":        {"kubernetes/statefulset.yaml", "preStop:", "postStart:", "preStop"},
		"no grace":          {"kubernetes/statefulset.yaml", "terminationGracePeriodSeconds: 75", "terminationGracePeriodSeconds: 5", "drain"},
		"another port":      {"kubernetes/networkpolicy.yaml", "port: grpc", "port: http", "a port that there is not"},
		"replica, no port":  {"kubernetes-cluster/networkpolicy.yaml", "port: node", "port: nodes", "a port that there is not"},
		"NATS misspelt":     {"kubernetes-nats/statefulset.yaml", "podAntiAffinity", "podAntiAfinity", "podAntiAfinity"},
		"NATS, no map":      {"kubernetes-nats/config.yaml", "name: nats\n  labels", "name: other\n  labels", `no ConfigMap "nats"`},
		"everybody":         {"kubernetes/networkpolicy.yaml", "    - from:\n        - namespaceSelector: {}\n          podSelector:\n            matchLabels:\n              copilot-grpc/client: \"true\"\n      ports:", "    - ports:", "everybody"},
		"certificate":       {golden + "every-cluster.yaml", "renewBefore", "renewalBefore", "renewalBefore"},
		"service monitor":   {golden + "every-single.yaml", "jobLabel", "jobLabels", "jobLabels"},
		"autoscaler":        {golden + "every-cluster.yaml", "averageValue", "averageValues", "averageValues"},
		"not headless":      {golden + "every-cluster.yaml", "serviceName: copilot-grpc-node", "serviceName: copilot-grpc", "not the headless one"},
		"route":             {"mesh/gateway-api/grpcroute.yaml", "hostnames", "hostname", "hostname"},
		"virtual service":   {"mesh/istio/virtualservice.yaml", "retryOn", "retriesOn", "retriesOn"},
		"mode of Istio":     {"mesh/istio/peerauthentication.yaml", "STRICT", "STRONG", "STRONG"},
		"Linkerd":           {"mesh/linkerd/server.yaml", "proxyProtocol", "protocol", "protocol"},
		"other mesh":        {"mesh/linkerd/server.yaml", "v1beta3", "v1beta1", "not expected here"},
		"other kind":        {golden + "every-single.yaml", "kind: ServiceAccount", "kind: Role", "not expected here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(deploy)); err != nil {
				t.Fatal(err)
			}
			if tc.file != "" {
				path := filepath.Join(dir, tc.file)
				text, err := os.ReadFile(path)
				if err != nil || !strings.Contains(string(text), tc.from) {
					t.Fatalf("%q is not in %s (%v)", tc.from, tc.file, err)
				}
				if err := os.WriteFile(path, []byte(strings.Replace(string(text), tc.from, tc.to, 1)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			found := strings.Join(lint(dir), "\n")
			if tc.file == "" && found != "" || !strings.Contains(found, tc.want) || tc.file != "" && found == "" {
				t.Errorf("found %q, want %q in it", found, tc.want)
			}
		})
	}
}
