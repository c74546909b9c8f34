// Command deploylint reads the files that a bridge is deployed with, as those who will use
// them do: the Dockerfile with BuildKit's parser and linter, the manifests and what Helm renders as the
// types of Kubernetes, cert-manager, the Prometheus operator, the Gateway API and Istio, in which a misspelt member is an error. It also checks what neither of them does:
// that the parts fit together, and that nothing runs as root.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("deploy", "../../../deploy", "the `folder` of the files")
	flag.Parse()
	problems := lint(*dir)
	for _, p := range problems {
		fmt.Fprintln(os.Stderr, p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// lint returns what is wrong with the files of a folder.
func lint(dir string) (problems []string) {
	for _, file := range []string{"Dockerfile", "package/Dockerfile"} {
		problems = append(problems, dockerfile(filepath.Join(dir, file))...)
	}
	for _, app := range []string{"kubernetes", "kubernetes-cluster", "kubernetes-nats"} {
		problems = append(problems, manifests(filepath.Join(dir, app))...)
	}
	problems = append(problems, mesh(filepath.Join(dir, "mesh"))...)
	golden, err := filepath.Glob(filepath.Join(dir, "helm/copilot-grpc/ci/golden/*.yaml"))
	if err != nil || len(golden) == 0 {
		return append(problems, fmt.Sprintf("%s: the chart has no golden file (%v)", dir, err))
	}
	for _, path := range golden {
		problems = append(problems, rendered(path)...)
	}
	return problems
}
