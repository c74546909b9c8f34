package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/loadcli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/rawgrpc"
)

// traceTime is how long a server is traced to count hand-overs between goroutines.
const traceTime = time.Second

// counted is the cost of one operation in figures that do not depend on the machine's speed.
type counted struct {
	total, wakes, switches, handOvers, allocations, bytes float64
	groups                                                []float64 // by callGroups
}

// countee is a server whose operations are counted, and the way to a session on it.
type countee struct {
	name   string
	server *bridge
	way    talking
}

// countsTable counts the cost of a send and a tool call for a server that only carries bytes, and for the bridge, or
// for each bridge of Config.Versus.
func (r *run) countsTable(ctx context.Context) (Table, error) {
	t := Table{
		Title: "Counts",
		Note: fmt.Sprintf("Of the server's process per operation, in %d operations back to back: system calls by "+
			"perf, which does not stop the process; context switches by the kernel; allocations by the Go runtime. "+
			"Wake-ups are the futex calls that wake a thread. Hand-overs are the goroutines that begin to run, in an "+
			"execution trace of %v. grpc-go alone carries the JSON-RPC of the same operations.",
			r.cfg.Operations, traceTime),
		Header: []string{"operation", "server", "system calls"},
	}
	for _, g := range callGroups {
		t.Header = append(t.Header, g.title)
	}
	t.Header = append(t.Header, "wake-ups", "context switches", "hand-overs", "allocations", "bytes allocated")
	all, err := r.countees(ctx)
	defer func() {
		for _, c := range all {
			r.end(c.name, func() error { return errors.Join(c.way.close(), c.server.stop()) })
		}
	}()
	if err != nil {
		return t, err
	}
	for _, op := range []string{"send", "tool call"} {
		for _, c := range all {
			got, err := c.count(ctx, op, r.cfg.Operations)
			if err != nil {
				return t, fmt.Errorf("%s, %s: %w", op, c.name, err)
			}
			t.row(append([]string{op, c.name}, got.cells()...)...)
		}
	}
	return t, nil
}

// countees starts the servers. It returns those that it has started also with an error.
func (r *run) countees(ctx context.Context) (all []*countee, err error) {
	raw, err := r.startRaw(ctx)
	if err != nil {
		return nil, err
	}
	config := map[string]any{"tools": []any{map[string]any{"name": loadcli.Tool, "description": "a tool"}}}
	relayed, err := r.newRelayed(ctx, raw, rawgrpc.RelayMethod, config)
	if err != nil {
		return nil, errors.Join(err, raw.stop())
	}
	all = append(all, &countee{"grpc-go alone", raw, talking{talker: relayed}})
	servers := r.cfg.Versus
	if len(servers) == 0 {
		servers = []string{r.cfg.Server}
	}
	for _, path := range servers {
		one := *r
		one.cfg.Server = path
		b, err := one.startBridge(ctx, r.cfg.LoadCLI)
		if err != nil {
			return all, err
		}
		a, err := newAttached(ctx, b, false, &cliv1.SessionConfig{}, loadcli.Tool)
		if err != nil {
			return all, errors.Join(err, b.stop())
		}
		name := "bridge"
		if len(servers) > 1 {
			name = filepath.Base(path)
		}
		all = append(all, &countee{name, b, talking{talker: a}})
	}
	return all, nil
}

// do carries out n operations of a kind.
func (c *countee) do(ctx context.Context, op string, n int) error {
	series := c.way.sends
	if op == "tool call" {
		series = c.way.tools
	}
	_, err := series(ctx, n)
	return err
}

// count counts the cost of n operations, after some that warm up.
func (c *countee) count(ctx context.Context, op string, n int) (out counted, err error) {
	if err := c.do(ctx, op, 200); err != nil {
		return out, err
	}
	pid := c.server.cmd.Process.Pid
	switched, err := contextSwitches(pid)
	if err != nil {
		return out, err
	}
	before, err := c.server.memory(ctx)
	if err != nil {
		return out, err
	}
	calls, err := systemCalls(ctx, pid, func() error { return c.do(ctx, op, n) })
	if err != nil {
		return out, err
	}
	after, err := c.server.memory(ctx)
	if err != nil {
		return out, err
	}
	now, err := contextSwitches(pid)
	if err != nil {
		return out, err
	}
	per := func(v float64) float64 { return v / float64(n) }
	out = counted{
		total: per(calls[allCalls]), wakes: per(calls[futexWakes]), switches: per(now - switched),
		allocations: per(after["Mallocs"] - before["Mallocs"]), bytes: per(after["TotalAlloc"] - before["TotalAlloc"]),
	}
	for _, g := range callGroups {
		out.groups = append(out.groups, per(g.sum(calls)))
	}
	out.handOvers, err = c.handOvers(ctx, op)
	return out, err
}

func (c *counted) cells() []string {
	out := []string{number(c.total)}
	for _, n := range c.groups {
		out = append(out, number(n))
	}
	return append(out, number(c.wakes), number(c.switches), number(c.handOvers), number(c.allocations), number(c.bytes))
}

// handOvers traces the server while it carries out operations, and returns the goroutines that begin to run in one.
func (c *countee) handOvers(ctx context.Context, op string) (float64, error) {
	type result struct {
		starts int
		err    error
	}
	traced := make(chan result, 1)
	go func() {
		starts, err := c.server.goroutineStarts(ctx, traceTime)
		traced <- result{starts, err}
	}()
	begin, done := time.Now(), 0.0
	for time.Since(begin) < traceTime {
		const batch = 50
		if err := c.do(ctx, op, batch); err != nil {
			return 0, errors.Join(err, (<-traced).err)
		}
		done += batch
	}
	done *= float64(traceTime) / float64(time.Since(begin)) // the last ones may be behind the trace's end
	got := <-traced
	return float64(got.starts) / done, got.err
}

// memory returns the server's memory statistics, by the names of runtime.MemStats.
func (b *bridge) memory(ctx context.Context) (map[string]float64, error) {
	text, err := b.adminPage(ctx, "/debug/pprof/allocs?debug=1")
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		var name string
		var value float64
		if n, _ := fmt.Sscanf(line, "# %s = %f", &name, &value); n == 2 {
			out[name] = value
		}
	}
	return out, nil
}
