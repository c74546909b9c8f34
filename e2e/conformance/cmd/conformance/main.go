// Command conformance runs the cases of e2e/conformance with the drivers that are built (.ci/conformance builds
// them), and prints a table. It exits with status 1 if a library differs from what a case expects and the list of known
// failures does not say so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/e2e/conformance"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run() error {
	var (
		root       = flag.String("root", ".", "folder of the repository")
		languages  = flag.String("languages", "", "languages, separated by commas; default: the built drivers")
		transports = flag.String("transports", "unix,tls,web", "transports, separated by commas")
		clis       = flag.String("clis", "", "VERSION=PATH of CLIs, separated by commas; default: wire cases only")
		cases      = flag.String("cases", "", "patterns like 'tools/*', separated by commas; default: all")
		parallel   = flag.Int("parallel", 2, "number of drivers at once")
		write      = flag.String("write", "", "page that receives the table")
		verbose    = flag.Bool("v", false, "print the time of each case")
	)
	flag.Parse()
	o := conformance.Options{
		Root: *root, Languages: list(*languages), Transports: list(*transports), Cases: list(*cases),
		Parallel: *parallel, Out: os.Stdout,
	}
	if o.Languages == nil {
		o.Languages = conformance.Built(*root)
	}
	for _, entry := range list(*clis) {
		version, path, ok := strings.Cut(entry, "=")
		if !ok {
			return fmt.Errorf("-clis: %q is not VERSION=PATH", entry)
		}
		o.CLIs = append(o.CLIs, conformance.CLI{Version: version, Path: path})
	}
	suite, err := conformance.NewSuite(o)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	verdicts, err := suite.Run(ctx)
	if err != nil {
		return err
	}
	if *verbose {
		for _, v := range verdicts {
			fmt.Printf("%6d ms  %-5v %s\n", v.Elapsed/time.Millisecond, v.Passed(), v.Where())
		}
	}
	return report(verdicts, *write)
}

func report(verdicts []conformance.Verdict, write string) error {
	failed := 0
	for _, v := range verdicts {
		if !v.Passed() {
			failed++
		}
	}
	table := conformance.Table(verdicts)
	fmt.Print(table)
	if failed > 0 {
		return fmt.Errorf("%d of %d runs differ", failed, len(verdicts))
	}
	if len(verdicts) == 0 {
		return errors.New("nothing has run")
	}
	fmt.Printf("all %d runs are as expected\n", len(verdicts))
	if write == "" {
		return nil
	}
	return conformance.WriteTable(write, table)
}

// list splits a list at commas; nil if it is empty.
func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
