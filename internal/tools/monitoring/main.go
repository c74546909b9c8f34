// Monitoring writes deploy/monitoring: the Grafana dashboard and the Prometheus rules of the server's metrics.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	out := flag.String("out", "", "the directory to write to")
	check := flag.Bool("check", false, "only compare with what is there")
	flag.Parse()
	if err := run(*out, *check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out string, check bool) error {
	dash, err := dashboardJSON()
	if err != nil {
		return err
	}
	rules, err := rulesYAML()
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"dashboard.json": dash, "rules.yaml": rules} {
		path := filepath.Join(out, name)
		if !check {
			if err := os.WriteFile(path, data, 0o644); err != nil {
				return err
			}
			continue
		}
		have, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(have, data) {
			return fmt.Errorf("%s is not what internal/tools/monitoring makes: make generate", path)
		}
	}
	return nil
}
