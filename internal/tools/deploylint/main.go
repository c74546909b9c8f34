// Command deploylint reads the files that a bridge is deployed with, as those who will use
// them do: the Dockerfile with BuildKit's parser and linter, the manifests as Kubernetes'
// types, in which a misspelt member is an error. It also checks what neither of them does:
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
	problems = dockerfile(filepath.Join(dir, "Dockerfile"))
	for _, app := range []string{"kubernetes", "kubernetes-cluster", "kubernetes-nats"} {
		problems = append(problems, manifests(filepath.Join(dir, app))...)
	}
	return problems
}
