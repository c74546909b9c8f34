// Command manpages writes the manual pages of copilot-grpc into a folder.
package main

import (
	"flag"
	"log"
	"os"

	"github.com/spf13/cobra/doc"

	"github.com/copilot-grpc/copilot-grpc/internal/app/cli"
)

func main() {
	out := flag.String("out", "bin/man", "the `folder`")
	flag.Parse()
	if err := write(*out); err != nil {
		log.Fatal(err)
	}
}

func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return doc.GenManTree(cli.Command("dev"), &doc.GenManHeader{Title: "COPILOT-GRPC", Section: "1"}, dir)
}
