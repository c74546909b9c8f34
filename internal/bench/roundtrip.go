package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/bench/loadcli"
)

// ways are the ways to a session that are compared.
var ways = []string{"direct", "unix", "tcp"}

// roundTrips is what a kind of operation takes each way.
type roundTrips struct{ direct, unix, tcp latency }

func (r *roundTrips) way(name string) *latency {
	return map[string]*latency{"direct": &r.direct, "unix": &r.unix, "tcp": &r.tcp}[name]
}

// talkers opens a session each way, with a CLI of its own for the direct one.
func (r *run) talkers(ctx context.Context, b *bridge, cli string, direct map[string]any, config *cliv1.SessionConfig, tool string) (map[string]talker, error) {
	out := map[string]talker{}
	d, err := newDirect(ctx, cli, r.cache, direct)
	if err != nil {
		return nil, fmt.Errorf("direct: %w", err)
	}
	out["direct"] = d
	for _, way := range ways[1:] {
		a, err := newAttached(ctx, b, way == "tcp", config, tool)
		if err != nil {
			return out, fmt.Errorf("bridge over %s: %w", way, err)
		}
		out[way] = a
	}
	return out, nil
}

// latencies measures sends and tool calls, the ways by turns.
func (r *run) latencies(ctx context.Context) (sends, tools roundTrips, err error) {
	b, err := r.startBridge(ctx, r.cfg.LoadCLI)
	if err != nil {
		return sends, tools, err
	}
	defer r.end("bridge", b.stop)
	tool := map[string]any{"tools": []any{map[string]any{"name": loadcli.Tool, "description": "a tool"}}}
	all, err := r.talkers(ctx, b, r.cfg.LoadCLI, tool, &cliv1.SessionConfig{}, loadcli.Tool)
	defer func() {
		for name, t := range all {
			r.end(name, t.close)
		}
	}()
	if err != nil {
		return sends, tools, err
	}
	for i := range r.cfg.Repeats + 1 {
		for _, way := range r.shuffled(ways) {
			sent, err := r.measured(b, r.cfg.Operations, func() ([]float64, error) { return manySends(ctx, all[way], r.cfg.Operations) })
			if err != nil {
				return sends, tools, fmt.Errorf("send over %s: %w", way, err)
			}
			called, err := r.measured(b, r.cfg.Operations, func() ([]float64, error) { return manyTools(ctx, all[way], r.cfg.Operations) })
			if err != nil {
				return sends, tools, fmt.Errorf("tool call over %s: %w", way, err)
			}
			if i > 0 { // the first round warms up
				sent.into(sends.way(way))
				called.into(tools.way(way))
			}
		}
	}
	return sends, tools, nil
}

// burst is what a series of operations took, each and, per operation, in CPU time of
// the bridge.
type burst struct {
	took []float64
	cpu  float64
}

func (b burst) into(l *latency) {
	l.add(b.took)
	l.cpu.add(b.cpu)
}

// measured runs a series with the bridge's clock before and after it.
func (r *run) measured(b *bridge, n int, series func() ([]float64, error)) (burst, error) {
	before, err := b.cpu()
	if err != nil {
		return burst{}, err
	}
	took, err := series()
	if err != nil {
		return burst{}, err
	}
	after, err := b.cpu()
	return burst{took, micros(after-before) / float64(n)}, err
}

// manySends times sends one after the other, from the call to its reply. The turn that
// each begins, empty as it is, has ended before the next.
func manySends(ctx context.Context, t talker, n int) ([]float64, error) {
	took := make([]float64, 0, n)
	for range n {
		begin := time.Now()
		if err := t.send(ctx, "hello"); err != nil {
			return nil, err
		}
		took = append(took, micros(time.Since(begin)))
		if _, err := t.idle(ctx); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// manyTools has the CLI call the tool, and takes the times from it.
func manyTools(ctx context.Context, t talker, n int) ([]float64, error) {
	if err := t.send(ctx, fmt.Sprintf("%s %d", loadcli.PromptTools, n)); err != nil {
		return nil, err
	}
	info, err := t.idle(ctx)
	if err != nil {
		return nil, err
	}
	list, ok := strings.CutPrefix(info, loadcli.Done)
	if !ok {
		return nil, fmt.Errorf("the CLI said %q", info)
	}
	took := make([]float64, 0, n)
	for text := range strings.SplitSeq(list, ",") {
		ns, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		took = append(took, float64(ns)/1e3)
	}
	return took, nil
}
