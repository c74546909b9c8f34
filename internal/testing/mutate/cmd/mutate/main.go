// Command mutate applies the faults of internal/testing/mutate to the source, those of its list and generated ones, and
// fails if the tests that have to notice one do not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
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

// options are the flags.
type options struct {
	only, write                         string
	sample, generated, parallel, search int
	named, units                        bool
	seed                                uint64
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.only, "only", "", "run the mutations whose name matches this `pattern`")
	flag.IntVar(&o.sample, "sample", 0, "run every `n`-th named mutation; 0 runs all of them")
	flag.BoolVar(&o.named, "named", true, "run the named mutations")
	flag.IntVar(&o.generated, "generated", 0, "also make `n` mutations from the syntax tree")
	flag.BoolVar(&o.units, "units", true, "have the unit tests of its package judge what the simulator does not notice")
	flag.IntVar(&o.search, "search", 0, "have the simulator make `n` further runs with a generated mutation that it does not notice, and show the first wrong one")
	flag.Uint64Var(&o.seed, "seed", 1, "the seed that says which")
	flag.IntVar(&o.parallel, "parallel", 2, "judge `n` generated mutations at the same time")
	flag.StringVar(&o.write, "write", "", "put the results into this `page`; not with -only or -sample")
	flag.Parse()
	pattern, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	if o.write != "" && (o.only != "" || o.sample > 1) {
		return errors.New("-write takes all mutations: leave -only and -sample out")
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
	runner := &mutate.Runner{Root: root, Dir: dir, SimulatorOnly: !o.units, Search: o.search}
	if o.named {
		if err := named(ctx, runner, o, pattern); err != nil {
			return err
		}
	}
	if o.generated > 0 {
		return generated(ctx, runner, o, pattern)
	}
	return nil
}

// named runs the mutations of the list.
func named(ctx context.Context, runner *mutate.Runner, o options, pattern *regexp.Regexp) error {
	all, err := mutate.Load()
	if err != nil {
		return err
	}
	var results []mutate.Result
	bad := 0
	for i, m := range all {
		if !pattern.MatchString(m.Name) || o.sample > 1 && i%o.sample != 0 {
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
	if len(results) == 0 && o.generated == 0 {
		return fmt.Errorf("no mutation has a name that matches %q", o.only)
	}
	if o.write != "" {
		return mutate.Write(o.write, "mutations", mutate.Table(results))
	}
	return nil
}

// generated runs mutations that are made from the syntax tree.
func generated(ctx context.Context, runner *mutate.Runner, o options, pattern *regexp.Regexp) error {
	all, err := mutate.Generate(runner.Root, mutate.Deciding, o.seed)
	if err != nil {
		return err
	}
	woven, err := runner.Weave(ctx, all)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(g mutate.Generated) bool { return !pattern.MatchString(g.Name) })
	found, err := woven.JudgeAll(ctx, all[:min(o.generated, len(all))], o.parallel, func(f mutate.Finding) {
		fmt.Printf("%-16s %-5v %s (%v)\n", f.Notice, f.Simulated, f.Name, f.Took.Round(100*time.Millisecond))
		if f.Script != "" {
			fmt.Println("  noticed by", f.Script)
		}
	})
	if err != nil {
		return err
	}
	table := mutate.GeneratedTable(found, o.seed)
	fmt.Print(table)
	bad := 0
	for _, f := range found {
		if f.Notice == mutate.ByNone && f.Reason == "" {
			bad++
		}
	}
	if o.write != "" {
		err = mutate.Write(o.write, "generated", table)
	}
	if err == nil && bad > 0 {
		err = fmt.Errorf("%d of %d generated mutations were not noticed and have no reason", bad, len(found))
	}
	return err
}
