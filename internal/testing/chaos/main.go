package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// tooLong is the time limit of a schedule.
const tooLong = 10 * time.Minute

// options are what the command line says.
type options struct {
	seed     uint64
	count    int
	real     int
	minutes  float64
	steps    int
	parallel int
	cli      string
	out      string
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	set := flag.NewFlagSet("chaos", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.Uint64Var(&o.seed, "seed", 0, "the first seed; 0 takes the time, and prints it")
	set.IntVar(&o.count, "count", 0, "how many schedules with the fake CLI; 0 is as many as -minutes allow")
	set.IntVar(&o.real, "real", 0, "how many schedules with the real CLI, after those")
	set.Float64Var(&o.minutes, "minutes", 0, "how long to go on; 0 is until -count is reached")
	set.IntVar(&o.steps, "steps", 200, "steps of a schedule")
	set.IntVar(&o.parallel, "parallel", 4, "schedules at once")
	set.StringVar(&o.cli, "cli", os.Getenv("COPILOT_CLI_PATH"), "the real CLI")
	set.StringVar(&o.out, "out", "", "write the summary to this file, too, and reports of failures beside it")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if o.count == 0 && o.real == 0 && o.minutes == 0 {
		o.count = 1
	}
	if o.real > 0 && o.cli == "" {
		return o, fmt.Errorf("-real needs -cli, or COPILOT_CLI_PATH")
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000_000
	}
	return o, nil
}

func main() {
	if code, ok := otherwise(); ok {
		os.Exit(code)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run runs schedules as the command line says, and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	_, _ = fmt.Fprintf(stdout, "seed %d\n", o.seed)
	sum := newSummary(o)
	sum.run(ctx, stdout)
	text := sum.String()
	_, _ = fmt.Fprint(stdout, text)
	if o.out != "" {
		if err := os.WriteFile(o.out, []byte(text), 0o600); err != nil {
			_, _ = fmt.Fprintln(stderr, err)
			return 1
		}
	}
	if len(sum.failed) > 0 || len(sum.forms) == 0 {
		return 1
	}
	return 0
}

// plans gives the plans of a run, one after the other.
func (o options) plans(ctx context.Context) <-chan Plan {
	out := make(chan Plan)
	begin := time.Now()
	fakes := o.count
	if fakes == 0 && o.real == 0 {
		fakes = 1 << 30
	}
	go func() {
		defer close(out)
		for i := range fakes + o.real {
			p := Plan{Seed: o.seed + uint64(i), Steps: o.steps}
			if i >= fakes {
				p.CLI = o.cli
			}
			if o.minutes > 0 && time.Since(begin).Minutes() >= o.minutes {
				return
			}
			select {
			case out <- p:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// run plays all plans, some at once.
func (s *summary) run(ctx context.Context, stdout io.Writer) {
	plans := s.o.plans(ctx)
	var players sync.WaitGroup
	for range s.o.parallel {
		players.Go(func() {
			for p := range plans {
				s.add(play(ctx, p), stdout)
			}
		})
	}
	players.Wait()
}

// keep writes the report of a failure to a file, and returns its name.
func (o options) keep(r *Report) string {
	dir := os.TempDir()
	if o.out != "" {
		dir = filepath.Dir(o.out)
	}
	name := filepath.Join(dir, fmt.Sprintf("chaos-%s-%d.log", r.Plan.form(), r.Plan.Seed))
	f, err := os.Create(name)
	if err != nil {
		return err.Error()
	}
	defer f.Close() //nolint:errcheck // a report that is cut short is still one
	for _, v := range r.Violations {
		_, _ = fmt.Fprintln(f, "VIOLATION", v)
	}
	for _, line := range r.Log {
		_, _ = fmt.Fprintln(f, line)
	}
	return name
}
