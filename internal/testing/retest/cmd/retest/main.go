// Command retest runs go test, and repeats failed tests once, alone: see package retest.
//
//	retest -list bin/flaky/unit.txt -flags "-vet=off -race" ./...
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/retest"
)

func main() {
	list := flag.String("list", "", "append flaky tests to this `file`")
	flags := flag.String("flags", "", "`flags` of go test, separated by spaces")
	flag.Parse()
	if *list == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: retest -list FILE [-flags FLAGS] PACKAGE…")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	runner := &retest.Runner{Flags: strings.Fields(*flags), List: *list, Out: os.Stdout, Err: os.Stderr}
	err := runner.Run(ctx, flag.Args()...)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "retest:", err)
		os.Exit(1)
	}
}
