// Command mutate applies the named faults of internal/testing/mutate to the source, one at a time,
// and fails if a test that has to notice one does not.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/mutate"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	only := flag.String("only", "", "run the mutations whose name matches this `pattern`")
	sample := flag.Int("sample", 0, "run every `n`-th mutation; 0 runs all of them")
	write := flag.String("write", "", "put the result into this `page`; only with all mutations")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	if *write != "" && (*only != "" || *sample > 1) {
		return fmt.Errorf("-write takes all mutations: leave -only and -sample out")
	}
	all, err := mutate.Load()
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	runner := &mutate.Runner{Root: root, Dir: dir}
	var results []mutate.Result
	bad := 0
	for i, m := range all {
		if !pattern.MatchString(m.Name) || *sample > 1 && i%*sample != 0 {
			continue
		}
		result, err := runner.Run(ctx, m)
		if err != nil {
			return err
		}
		results = append(results, result)
		fmt.Printf("%-26s %-14s %s (%s, %v)\n", result.Verdict, m.Class, m.Name, m.Test,
			result.Took.Round(100*time.Millisecond))
		if result.Verdict != mutate.Killed {
			bad++
			fmt.Println(result.Output)
		}
	}
	fmt.Printf("mutations: %d, not noticed: %d\n", len(results), bad)
	if bad > 0 {
		return fmt.Errorf("%d of %d mutations were not noticed", bad, len(results))
	}
	if len(results) == 0 {
		return fmt.Errorf("no mutation has a name that matches %q", *only)
	}
	if *write != "" {
		return mutate.WriteTable(*write, results)
	}
	return nil
}
