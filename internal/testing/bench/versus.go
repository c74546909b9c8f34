package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/loadcli"
)

// contender is one of several servers that are compared.
type contender struct {
	name   string
	bridge *bridge
	// shim is the official SDK for Node through the server's shim; nil until it is used.
	shim *driver
	// cpu is µs by what was done, p50 the round trips' median.
	cpu, p50 map[string]*sample
}

func note(into map[string]*sample, what string, v float64) {
	if into[what] == nil {
		into[what] = &sample{}
	}
	into[what].add(v)
}

// versus has several servers do the same by turns, in random order: what a change is worth,
// or, with a script that starts the server in another way, what a part of it costs. The first
// is what the others are compared with.
func (r *run) versus(ctx context.Context) (Table, error) {
	t := Table{
		Title: "Servers by turns",
		Note: fmt.Sprintf("CPU µs of the server's process per event (saturated) or round trip, %d repeats by turns, "+
			"and for round trips their median or, where it says so, their p99. "+
			"Against the first: the median of the repeats' ratios, and the interval in which the true median is with "+
			"95 %%.", r.cfg.Repeats),
		Header: []string{"what", "server", "CPU", "against the first", "95 %", "p50", "against the first", "95 %"},
	}
	var all []*contender
	defer func() {
		for _, c := range all {
			if c.shim != nil {
				r.end(c.name+"'s shim", c.shim.close)
			}
			r.end(c.name, c.bridge.stop)
		}
	}()
	for _, path := range r.cfg.Versus {
		one := *r
		one.cfg.Server = path
		b, err := one.startBridge(ctx, r.cfg.LoadCLI)
		if err != nil {
			return t, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all,
			&contender{name: filepath.Base(path), bridge: b, cpu: map[string]*sample{}, p50: map[string]*sample{}})
	}
	for i := range r.cfg.Repeats + 1 {
		for _, at := range rand.Perm(len(all)) {
			one := *r
			one.cfg.Server = r.cfg.Versus[at]
			if err := all[at].compete(ctx, &one); err != nil {
				return t, fmt.Errorf("%s: %w", all[at].name, err)
			}
			if i == 0 { // the first round warms up
				clear(all[at].cpu)
				clear(all[at].p50)
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(all[0].cpu)) {
		for _, c := range all {
			cells := append([]string{what, c.name}, against(c.cpu[what], all[0].cpu[what])...)
			t.row(append(cells, against(c.p50[what], all[0].p50[what])...)...)
		}
	}
	return t, nil
}

// against returns the cells of a figure: it, its ratio to the first server's, and what that shows. Without a figure the
// cells are empty.
func against(s, first *sample) []string {
	switch {
	case s == nil:
		return []string{"–", "–", "–"}
	case s == first:
		return []string{s.String(), "–", "–"}
	}
	ratios := ratio(*s, *first)
	return []string{s.String(), ratios.String(), ratios.verdict()}
}

// compete has the server do everything once.
func (c *contender) compete(ctx context.Context, r *run) error {
	var errs []error
	for name, turn := range map[string]func(context.Context, *run) error{
		"ingest": c.ingest, "scale": c.scale, "roundtrip": c.trips,
		manySessions: c.manySessions, "shim": c.shimTrips,
	} {
		asked := len(r.cfg.Only) == 0 && name != manySessions && name != "shim"
		if asked || slices.Contains(r.cfg.Only, name) {
			errs = append(errs, turn(ctx, r))
		}
	}
	return errors.Join(errs...)
}

func (c *contender) ingest(ctx context.Context, r *run) error {
	a, err := newAudience(ctx, c.bridge, 1, false)
	if err != nil {
		return err
	}
	defer r.end("audience", a.close)
	for _, p := range r.cfg.payloads() {
		cpu, _, err := a.blast(ctx, p.Name, r.events(p, 1))
		if err != nil {
			return err
		}
		note(c.cpu, p.Name, cpu)
	}
	return nil
}

func (c *contender) scale(ctx context.Context, r *run) error { return c.spread(ctx, r, spreadSessions) }

// manySessions is the comparison with many sessions. It takes long, and is made only if it is asked for.
const manySessions = "crowd"

func (c *contender) manySessions(ctx context.Context, r *run) error {
	return c.spread(ctx, r, scaleSessions[len(scaleSessions)-1])
}

// spread measures an event of a number of sessions.
func (c *contender) spread(ctx context.Context, r *run, sessions int) error {
	a, err := newMany(ctx, c.bridge, sessions)
	if err != nil {
		return err
	}
	defer r.end("audience", a.close)
	for _, p := range r.cfg.payloads() {
		name := p.Name
		if !slices.Contains(spreadPayloads, name) {
			continue
		}
		if err := c.spreadOf(ctx, a, fmt.Sprintf("%s, %d sessions", name, sessions), name, r.events(p, 2)); err != nil {
			return err
		}
	}
	return nil
}

// spreadOf notes the cost of an event until the subscribers have all of them, and until the server has also finished
// what it does after the turns of the sessions.
func (c *contender) spreadOf(ctx context.Context, a *audience, what, payload string, events int) error {
	if err := c.bridge.settle(ctx); err != nil {
		return err
	}
	before, err := c.bridge.cpu()
	if err != nil {
		return err
	}
	cpu, _, err := a.blast(ctx, payload, events)
	if err != nil {
		return err
	}
	if err := c.bridge.settle(ctx); err != nil {
		return err
	}
	after, err := c.bridge.cpu()
	note(c.cpu, what, cpu)
	note(c.cpu, what+", until idle", micros(after-before)/float64(events))
	return err
}

func (c *contender) trips(ctx context.Context, r *run) error {
	a, err := newAttached(ctx, c.bridge, false, &cliv1.SessionConfig{}, loadcli.Tool)
	if err != nil {
		return err
	}
	defer r.end("attached", func() error { return a.end(ctx) })
	way := talking{talker: a}
	for what, series := range map[string]func(context.Context, int) ([]float64, error){"send": way.sends,
		"tool call": way.tools} {
		got, err := r.measured(c.bridge, r.cfg.Operations,
			func() ([]float64, error) { return series(ctx, r.cfg.Operations) })
		if err != nil {
			return err
		}
		c.noteTrips(what, got)
	}
	return nil
}

// noteTrips notes the CPU time of round trips, their median and, in a separate row, the 99th of 100.
func (c *contender) noteTrips(what string, got burst) {
	note(c.cpu, what, got.cpu)
	note(c.p50, what, percentile(got.took, 0.5))
	note(c.cpu, what+", p99", got.cpu)
	note(c.p50, what+", p99", percentile(got.took, 0.99))
}

// shimTrips makes the round trips with the SDK for Node through the shim. Beside the CPU time of the server it notes
// that of the shim's process.
func (c *contender) shimTrips(ctx context.Context, r *run) (err error) {
	if c.shim == nil {
		if c.shim, err = r.throughShim(ctx, c.bridge, nil); err != nil {
			return err
		}
	}
	shim, err := childOf(c.shim.cmd.Process.Pid)
	if err != nil {
		return err
	}
	for what, series := range map[string]func(context.Context, int) ([]float64, error){
		"send, SDK for Node, shim": c.shim.sends, "tool call, SDK for Node, shim": c.shim.tools,
	} {
		before, err := cpuTime(shim)
		if err != nil {
			return err
		}
		got, err := r.measured(c.bridge, r.cfg.Operations,
			func() ([]float64, error) { return series(ctx, r.cfg.Operations) })
		if err != nil {
			return err
		}
		after, err := cpuTime(shim)
		if err != nil {
			return err
		}
		note(c.cpu, what, got.cpu)
		note(c.p50, what, percentile(got.took, 0.5))
		note(c.cpu, what+"'s process", micros(after-before)/float64(r.cfg.Operations))
	}
	return nil
}
