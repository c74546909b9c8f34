// Command libraries measures what client libraries cost beside their bare stubs, and writes a document with the table.
//
//	libraries -write docs/performance/libraries.md "go=bin/bench-go" "python=python3 -m tests.bench"
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
	document := flag.String("write", "", "`file` to write with the table")
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
		fmt.Print(table.Markdown())
		return nil
	}
	text := bench.Document("The client libraries", "make bench-libraries", bench.Environment(ctx)+".", table)
	return os.WriteFile(*document, []byte(text), 0o644)
}
