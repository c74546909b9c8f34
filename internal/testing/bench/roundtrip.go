package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/loadcli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/rawgrpc"
)

// ways are the ways to a session that are compared: the bare connection, the same through a
// server that only carries bytes, official SDKs, the bridge. SDKs that cannot be had are left out.
var ways = []string{
	"direct", relayWay, relayKeptWay, relayUnaryWay, "node", "python", "go", "unix", idWay, unaryWay, "tcp", "shim",
}

const (
	// relayWay and relayUnaryWay are the ways through grpc-go alone: a stream, and a unary call for a send.
	// relayKeptWay is the stream with what a bridge has to do at least: rawgrpc.KeepMethod.
	relayWay, relayUnaryWay, relayKeptWay = "relay", "relay unary", "relay kept"
	// unaryWay is a send by SessionService.Send. The other ways of the bridge send by a command of Attach.
	unaryWay = "unary"
	// idWay is a send by a command with a request id, as the libraries send.
	idWay = "unix with ids"
)

// sendsOnly reports whether a way has sends only.
func sendsOnly(way string) bool { return way == unaryWay || way == relayUnaryWay || way == idWay }

// relayOf is the way through grpc-go alone with which a way is compared.
func relayOf(way string) string {
	if way == unaryWay || way == relayUnaryWay {
		return relayUnaryWay
	}
	return relayWay
}

// relayed reports whether a way is by grpc-go alone.
func relayed(way string) bool { return way == relayWay || way == relayKeptWay || way == relayUnaryWay }

// traveller goes one way, again and again.
type traveller interface {
	// sends times sends one after the other, from the call to its reply.
	sends(ctx context.Context, n int) ([]float64, error)
	// tools has the CLI call the tool, and takes the times from it.
	tools(ctx context.Context, n int) ([]float64, error)
	close() error
}

// roundTrips is what a kind of operation takes each way.
type roundTrips map[string]*latency

func (r roundTrips) way(name string) *latency {
	if r[name] == nil {
		r[name] = &latency{}
	}
	return r[name]
}

// travellers opens a session each way, with a separate CLI for the ways without a bridge.
func (r *run) travellers(ctx context.Context, b, raw *bridge) (map[string]traveller, error) {
	out := map[string]traveller{}
	config := map[string]any{"tools": []any{map[string]any{"name": loadcli.Tool, "description": "a tool"}}}
	d, err := newDirect(ctx, r.cfg.LoadCLI, config)
	if err != nil {
		return nil, fmt.Errorf("direct: %w", err)
	}
	out["direct"] = talking{talker: d}
	for way, method := range map[string]string{relayWay: rawgrpc.RelayMethod, relayKeptWay: rawgrpc.KeepMethod} {
		if d, err = r.newRelayed(ctx, raw, method, config); err != nil {
			return out, fmt.Errorf("%s: %w", way, err)
		}
		out[way] = talking{talker: d}
	}
	if d, err = r.newRelayed(ctx, raw, rawgrpc.RelayMethod, config); err != nil {
		return out, fmt.Errorf("relay for unary calls: %w", err)
	}
	out[relayUnaryWay] = talking{d, d.sendUnary}
	for name, d := range r.drivers(ctx, r.cfg.LoadCLI, nil) {
		out[name] = d
	}
	for _, way := range []string{"unix", "tcp"} {
		a, err := newAttached(ctx, b, way == "tcp", &cliv1.SessionConfig{}, loadcli.Tool)
		if err != nil {
			return out, fmt.Errorf("bridge over %s: %w", way, err)
		}
		out[way] = talking{talker: a}
	}
	a, err := newAttached(ctx, b, false, &cliv1.SessionConfig{}, "")
	if err != nil {
		return out, fmt.Errorf("unary calls: %w", err)
	}
	out[unaryWay] = talking{a, a.sendUnary}
	if a, err = newAttached(ctx, b, false, &cliv1.SessionConfig{}, ""); err != nil {
		return out, fmt.Errorf("sends with request ids: %w", err)
	}
	a.ids = true
	out[idWay] = talking{talker: a}
	if out["node"] != nil {
		d, err := r.throughShim(ctx, b, nil)
		if err != nil {
			return out, fmt.Errorf("shim: %w", err)
		}
		out["shim"] = d
	}
	return out, nil
}

// latencies measures sends and tool calls, the ways by turns.
func (r *run) latencies(ctx context.Context) (sends, tools roundTrips, err error) {
	sends, tools = roundTrips{}, roundTrips{}
	b, err := r.startBridge(ctx, r.cfg.LoadCLI)
	if err != nil {
		return sends, tools, err
	}
	defer r.end("bridge", b.stop)
	raw, err := r.startRaw(ctx)
	if err != nil {
		return sends, tools, err
	}
	defer r.end("raw server", raw.stop)
	all, err := r.travellers(ctx, b, raw)
	defer func() {
		for name, t := range all {
			r.end(name, t.close)
		}
	}()
	if err != nil {
		return sends, tools, err
	}
	for i := range r.cfg.Repeats + 1 {
		for _, way := range shuffled(slices.Collect(maps.Keys(all))) {
			server := b
			if relayed(way) {
				server = raw
			}
			sent, err := r.measured(server, r.cfg.Operations,
				func() ([]float64, error) { return all[way].sends(ctx, r.cfg.Operations) })
			if err != nil {
				return sends, tools, fmt.Errorf("send over %s: %w", way, err)
			}
			if i > 0 { // the first round warms up
				sent.into(sends.way(way))
			}
			if sendsOnly(way) { // a tool call is the same for it
				continue
			}
			called, err := r.measured(server, r.cfg.Operations,
				func() ([]float64, error) { return all[way].tools(ctx, r.cfg.Operations) })
			if err != nil {
				return sends, tools, fmt.Errorf("tool call over %s: %w", way, err)
			}
			if i > 0 {
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

// talking is a talker as a traveller.
type talking struct {
	talker
	// say sends a prompt in another way than the talker's own, if it is not nil.
	say func(context.Context) error
}

// sends implements traveller. The turn that each send begins, empty as it is, has ended
// before the next.
func (t talking) sends(ctx context.Context, n int) ([]float64, error) {
	say := t.say
	if say == nil {
		say = func(ctx context.Context) error { return t.send(ctx, "hello") }
	}
	took := make([]float64, 0, n)
	for range n {
		begin := time.Now()
		if err := say(ctx); err != nil {
			return nil, err
		}
		took = append(took, micros(time.Since(begin)))
		if _, err := t.idle(ctx); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// tools implements traveller.
func (t talking) tools(ctx context.Context, n int) ([]float64, error) {
	if err := t.send(ctx, fmt.Sprintf("%s %d", loadcli.PromptTools, n)); err != nil {
		return nil, err
	}
	info, err := t.idle(ctx)
	if err != nil {
		return nil, err
	}
	return toolTimes(info)
}

// turn times a turn, in µs, from the send to session.idle.
func (t talking) turn(ctx context.Context, prompt string) (float64, error) {
	begin := time.Now()
	if err := t.send(ctx, prompt); err != nil {
		return 0, err
	}
	_, err := t.idle(ctx)
	return micros(time.Since(begin)), err
}

// toolTimes reads what the CLI says after a series of tool calls.
func toolTimes(info string) ([]float64, error) {
	list, ok := strings.CutPrefix(info, loadcli.Done)
	if !ok {
		return nil, fmt.Errorf("the CLI said %q", info)
	}
	var took []int64
	for text := range strings.SplitSeq(list, ",") {
		ns, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		took = append(took, ns)
	}
	return inMicros(took), nil
}
