// Command bench measures the bridge beside a CLI spoken to directly, prints the figures,
// and writes them to a document.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	c := bench.Config{Module: ".", Log: os.Stderr}
	flag.StringVar(&c.CLI, "cli", os.Getenv("COPILOT_CLI_PATH"),
		"`path` of the real CLI; without it real turns are left out")
	flag.StringVar(&c.Server, "server", "", "`path` of copilot-grpc (default: built)")
	flag.IntVar(&c.Repeats, "repeats", 5, "how often everything is measured")
	flag.IntVar(&c.Operations, "operations", 1000, "round trips in a repeat, turns of a soak")
	flag.IntVar(&c.Turns, "turns", 15, "real turns in a repeat")
	flag.IntVar(&c.BlastBytes, "blast", 24<<20, "`bytes` of events in a repeat")
	only := flag.String("only", "", "`sections` to measure, with commas: turn, roundtrip, counts, ingest, fanout, "+
		"scale, storm, memory; or soak alone")
	payloads := flag.String("payloads", "", "`events` to blast, with commas: delta, tool1k, msg4k, msg20k, system40k")
	versus := flag.String("versus", "", "`paths` of several copilot-grpc, or scripts that start one, with commas: "+
		"compares them by turns (-only: ingest, scale, roundtrip, crowd, shim; or counts alone), "+
		"and writes nothing")
	document := flag.String("write", "", "`file` to write with the figures")
	flag.Parse()
	if *only != "" {
		c.Only = strings.Split(*only, ",")
	}
	if *payloads != "" {
		c.Payloads = strings.Split(*payloads, ",")
	}
	if *versus != "" {
		c.Versus, *document = strings.Split(*versus, ","), ""
		c.Server = c.Versus[0]
	}
	dir, err := os.MkdirTemp("", "copilot-grpc-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	const testing = "./internal/testing/"
	for path, pkg := range map[*string]string{
		&c.LoadCLI: testing + "bench/cmd/loadcli", &c.Raw: testing + "bench/cmd/rawgrpc",
		&c.FakeCLI: testing + "fakecli/cmd/fakecopilot",
	} {
		if *path, err = build(ctx, dir, pkg); err != nil {
			return err
		}
	}
	if c.Server == "" {
		if c.Server, err = build(ctx, dir, "./cmd/copilot-grpc"); err != nil {
			return err
		}
	}
	environment := bench.Environment(ctx)
	fmt.Println(environment)
	tables, err := bench.Run(ctx, c)
	for i := range tables {
		fmt.Println("\n" + tables[i].Markdown())
	}
	if err != nil || *document == "" {
		return err
	}
	return write(*document, environment, tables)
}

// build builds a package of this module.
func build(ctx context.Context, dir, pkg string) (string, error) {
	path := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return path, cmd.Run()
}

// write writes the document of the figures.
func write(path, environment string, tables []bench.Table) error {
	head := fmt.Sprintf("%s. Load of the machine, this run's own included, at its end: %s.", environment, load())
	text := bench.Document("The server", "make bench", head, tables...)
	return os.WriteFile(path, []byte(text), 0o644)
}

// load is the machine's load average over one, five and fifteen minutes.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "not known"
	}
	return strings.Join(strings.Fields(string(text))[:3], ", ")
}
