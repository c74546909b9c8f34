// Command libraries measures what client libraries cost beside their bare stubs, and writes the table into a document.
//
//	libraries -write docs/performance.md "go=bin/bench-go" "python=python3 -m tests.bench"
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "libraries:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	c := bench.LibraryConfig{Log: os.Stderr}
	flag.IntVar(&c.Repeats, "repeats", 9, "measured rounds")
	flag.IntVar(&c.Calls, "calls", 2000, "tool calls in a round")
	flag.IntVar(&c.Events, "events", 32000, "events in a round")
	document := flag.String("write", "", "`file` to write the table into")
	flag.Parse()
	for _, driver := range flag.Args() {
		name, command, ok := strings.Cut(driver, "=")
		if !ok {
			return errors.New("a driver is given as NAME=COMMAND")
		}
		c.Libraries = append(c.Libraries, bench.Library{Name: name, Command: strings.Fields(command)})
	}
	table, err := bench.CompareLibraries(ctx, c)
	if err != nil {
		return err
	}
	if *document == "" {
		return table.Print(os.Stdout)
	}
	text, err := os.ReadFile(*document)
	if err != nil {
		return err
	}
	out, err := bench.InsertLibraries(string(text), bench.Environment(ctx)+".\n", table)
	if err != nil {
		return err
	}
	return os.WriteFile(*document, []byte(out), 0o644)
}
