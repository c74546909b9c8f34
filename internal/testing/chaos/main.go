package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// workerEnv makes the program a worker, which plays the plans of its input.
const workerEnv = "COPILOT_GRPC_CHAOS_WORKER"

// tooLong is the time limit of a schedule. After it the process prints its stacks and ends.
const tooLong = 10 * time.Minute

// options are what the command line says.
type options struct {
	seed     uint64
	count    int
	real     int
	minutes  float64
	steps    int
	parallel int
	mode     string
	cli      string
	out      string
	soak     int
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	set := flag.NewFlagSet("chaos", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.Uint64Var(&o.seed, "seed", 0, "the first seed; 0 takes the time, and prints it")
	set.IntVar(&o.count, "count", 0, "how many schedules with the fake CLI; 0 is as many as -minutes allow")
	set.IntVar(&o.real, "real", 0, "how many schedules with the real CLI, after those")
	set.Float64Var(&o.minutes, "minutes", 0, "how long to go on; 0 is until -count is reached")
	set.IntVar(&o.steps, "steps", 200, "steps of a schedule")
	set.IntVar(&o.parallel, "parallel", 2, "schedules at once")
	set.StringVar(&o.mode, "mode", "", "memory or process; default: one in eight is process")
	set.StringVar(&o.cli, "cli", os.Getenv("COPILOT_CLI_PATH"), "the real CLI")
	set.IntVar(&o.soak, "soak", 0, "in place of schedules, so many turns in which nothing breaks, and what memory "+
		"the server takes")
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

// Main runs schedules as the command line says, and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	if os.Getenv(workerEnv) != "" {
		return work(os.Stdin, stdout)
	}
	o, err := parse(args, stderr)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.soak > 0 {
		return o.soakMain(ctx, stdout, stderr)
	}
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
	if sum.failed > 0 || sum.played == 0 {
		return 1
	}
	return 0
}

// orphanPatience is the time limit of a schedule whose parent process has gone.
const orphanPatience = 30 * time.Second

// work plays plans, one a line, and answers with reports. When its input ends, the parent process has gone, and the
// schedule that is being played ends too.
func work(in io.Reader, out io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	plans := make(chan Plan)
	go func() {
		defer abandon(ended)
		defer close(plans)
		defer cancel()
		for input := json.NewDecoder(in); ; {
			var p Plan
			if input.Decode(&p) != nil {
				return
			}
			plans <- p
		}
	}()
	reports := json.NewEncoder(out)
	for p := range plans {
		if err := reports.Encode(Run(ctx, p)); err != nil {
			return 1
		}
	}
	return 0
}

// abandon ends the process if what has ended does not say so in time.
func abandon(ended <-chan struct{}) {
	select {
	case <-ended:
	case <-time.After(orphanPatience):
		os.Exit(1)
	}
}

// plans gives the plans of a run, one after the other.
func (o options) plans(ctx context.Context) <-chan Plan {
	out := make(chan Plan)
	begin := time.Now()
	more := func(i, count int) bool {
		return (count == 0 || i < count) && (o.minutes == 0 || time.Since(begin).Minutes() < o.minutes)
	}
	go func() {
		defer close(out)
		send := func(p Plan) bool {
			select {
			case out <- p:
				return true
			case <-ctx.Done():
				return false
			}
		}
		i := 0
		for ; (o.count > 0 || o.real == 0) && more(i, o.count); i++ {
			p := Plan{Seed: o.seed + uint64(i), Mode: Memory, Steps: o.steps}
			if p.Seed%8 == 7 {
				p.Mode = Process
			}
			if o.mode != "" {
				p.Mode = Mode(o.mode)
			}
			if !send(p) {
				return
			}
		}
		for n := 0; o.real > 0 && more(n, o.real); n++ {
			if !send(Plan{Seed: o.seed + uint64(i+n), Mode: Real, Steps: o.steps, CLI: o.cli}) {
				return
			}
		}
	}()
	return out
}

// run plays all plans by some workers.
func (s *summary) run(ctx context.Context, stdout io.Writer) {
	plans := s.o.plans(ctx)
	var workers sync.WaitGroup
	for range s.o.parallel {
		workers.Go(func() {
			var k *worker
			for p := range plans {
				if k == nil {
					k = newWorker(ctx)
				}
				r, ok := k.play(p)
				s.add(r, stdout)
				if !ok {
					k.close()
					k = nil
				}
			}
			if k != nil {
				s.heaps(k.heaps)
				k.close()
			}
		})
	}
	workers.Wait()
}

// worker is a process that plays plans: what one leaves behind is its own.
type worker struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	err     error
	stderr  tail
	heaps   []int
	release context.CancelFunc
}

func newWorker(ctx context.Context) *worker {
	k := &worker{}
	var self string
	if self, k.err = os.Executable(); k.err != nil {
		return k
	}
	ctx, k.release = context.WithCancel(ctx)
	k.cmd = exec.CommandContext(ctx, self)
	k.cmd.Env = append(os.Environ(), workerEnv+"=1")
	k.cmd.Stderr = &k.stderr
	k.cmd.Cancel = func() error { return k.in.Close() }
	k.cmd.WaitDelay = orphanPatience
	var out io.ReadCloser
	if k.in, k.err = k.cmd.StdinPipe(); k.err == nil {
		if out, k.err = k.cmd.StdoutPipe(); k.err == nil {
			k.err = k.cmd.Start()
		}
	}
	k.out = bufio.NewReader(out)
	return k
}

// play plays a plan; false says that the worker is of no more use.
func (k *worker) play(p Plan) (*Report, bool) {
	failed := func(err error) (*Report, bool) {
		return &Report{Plan: p, Steps: p.Steps,
			Violations: []string{fmt.Sprintf("the schedule's process ended: %v\n%s", err, k.stderr.String())}}, false
	}
	if k.err != nil {
		return failed(k.err)
	}
	watchdog := time.AfterFunc(tooLong, func() { _ = k.cmd.Process.Signal(syscall.SIGQUIT) })
	defer watchdog.Stop()
	if err := json.NewEncoder(k.in).Encode(p); err != nil {
		return failed(err)
	}
	line, err := k.out.ReadBytes('\n')
	if err != nil {
		return failed(err)
	}
	r := &Report{}
	if err := json.Unmarshal(line, r); err != nil {
		return failed(err)
	}
	k.heaps = append(k.heaps, r.Counts.Heap)
	return r, true
}

func (k *worker) close() {
	if k.err != nil {
		return
	}
	_ = k.in.Close() // its end
	kill := time.AfterFunc(2*orphanPatience, func() { _ = k.cmd.Process.Kill() })
	defer kill.Stop()
	_ = k.cmd.Wait()
	k.release()
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// maxTail is how much a tail keeps: the stacks of a process with much going on.
const maxTail = 1 << 20

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text = append(t.text, b...); len(t.text) > maxTail {
		t.text = t.text[len(t.text)-maxTail:]
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// keep writes the report of a failure to a file, and returns its name.
func (o options) keep(r *Report) string {
	dir := os.TempDir()
	if o.out != "" {
		dir = filepath.Dir(o.out)
	}
	name := filepath.Join(dir, fmt.Sprintf("chaos-%s-%d.log", r.Plan.Mode, r.Plan.Seed))
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
