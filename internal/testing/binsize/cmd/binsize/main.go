// Command binsize fails if a program is larger than a limit when it is stripped, or prints the sizes of its parts.
//
//	binsize -limit 38.5 bin/copilot-grpc
//	binsize -table bin/copilot-grpc
package main

import (
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/binsize"
)

func main() {
	limit := flag.Float64("limit", 0, "fail above this many `MB` (1,000,000 bytes) without symbols; 0 has no limit")
	table := flag.Bool("table", false, "print the parts as a table of Markdown")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: binsize [-limit MB] [-table] PROGRAM")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *limit, *table); err != nil {
		fmt.Fprintln(os.Stderr, "binsize:", err)
		os.Exit(1)
	}
}

func run(path string, limit float64, table bool) error {
	report, err := binsize.Read(path)
	if format := (*elf.FormatError)(nil); errors.As(err, &format) {
		fmt.Printf("NOT RUN: %s is not a program of the format ELF\n", path)
		return nil
	}
	if err != nil {
		return err
	}
	if table {
		if err := report.Table(os.Stdout); err != nil {
			return err
		}
	}
	mb := func(bytes int64) float64 { return float64(bytes) / 1e6 }
	fmt.Printf("%s: %.1f MB without symbols: code %.1f, tables %.1f, constants %.1f\n", path, mb(report.Stripped),
		mb(report.Code), mb(report.Tables), mb(report.Constants))
	if limit == 0 || float64(report.Stripped) <= limit*1e6 {
		return nil
	}
	err = fmt.Errorf("%s has %d bytes without symbols, and the limit is %.1f MB", path, report.Stripped, limit)
	if report.ByName {
		return fmt.Errorf("%w: it calls methods by their names, so the linker keeps all exported methods; "+
			"build with -tags=grpcnotrace, as the Makefile does, or find the caller with "+
			"go build -ldflags=-dumpdep ./cmd/copilot-grpc 2>&1 | grep '<ReflectMethod>'", err)
	}
	return err
}
