package bench

import (
	"context"
	"fmt"
	"slices"
)

func (r *run) turnTable(ctx context.Context) (Table, error) {
	t := Table{
		Title: "A short turn on the real CLI",
		Note: fmt.Sprintf("From the send to session.idle, ms; the model is played offline. %d turns of each way in "+
			"each of %d repeats, by turns. "+
			"The ratio is that of the medians (p50) of a repeat. Target: 1.05.", r.cfg.Turns, r.cfg.Repeats),
		Header: []string{"way", "p50, ms", "p99, ms", "p50 against direct", "against the SDK for Node",
			"CPU of the bridge, µs per turn"},
	}
	if r.cfg.CLI == "" {
		t.row("NOT RUN: no real CLI", "", "", "", "", "")
		return t, nil
	}
	trips, err := r.turns(ctx)
	if err != nil {
		return t, err
	}
	for _, way := range ways {
		if relayed(way) || sendsOnly(way) {
			continue // of round trips alone
		}
		l := trips.way(way)
		t.row(wayNames[way], scaled(l.p50, 1e-3).String(), scaled(l.p99, 1e-3).String(),
			ratio(l.p50, trips.way("direct").p50).String(), ratio(l.p50, trips.way("node").p50).String(), busy(way, l))
	}
	return t, nil
}

var wayNames = map[string]string{
	"direct": "direct, stdio", relayWay: "direct, its bytes carried by grpc-go alone, unix socket",
	relayKeptWay: "the same, written to a file before it is sent on", relayUnaryWay: "as grpc-go alone, unary call",
	"node": "official SDK for Node, stdio", "python": "official SDK for Python, stdio",
	"go":   "official SDK for Go, stdio",
	"unix": "bridge, unix socket", idWay: "bridge, unix socket, with a request id",
	unaryWay: "bridge, unix socket, unary call", "tcp": "bridge, TCP",
	"shim": "official SDK for Node, shim, bridge over unix",
}

func busy(way string, l *latency) string {
	if relayed(way) || slices.Contains([]string{"unix", idWay, unaryWay, "tcp", "shim"}, way) {
		return l.cpu.String()
	}
	return "–"
}

func scaled(s sample, by float64) sample {
	var out sample
	for _, v := range s {
		out.add(v * by)
	}
	return out
}

func (r *run) roundTripTable(ctx context.Context) (Table, error) {
	t := Table{
		Title: "Round trips",
		Note: fmt.Sprintf("µs, back to back, %d in each of %d repeats, with a CLI that answers at once. A send is "+
			"timed by the caller, from the call to its reply, and made by a command of Attach unless it is unary; "+
			"a tool call by the CLI, from external_tool.requested to the answer. "+
			"The way by grpc-go alone carries the JSON-RPC of direct through a server that only copies: the floor "+
			"for any server between, by a stream or, for unary sends, by a unary call. Written to a file: such a "+
			"server that keeps the bridge's contract, in which what the CLI sends is in a file before it is sent on, "+
			"and the goroutine that reads the CLI does not wait for that.",
			r.cfg.Operations, r.cfg.Repeats),
		Header: []string{"operation", "way", "p50", "p99", "p50 against direct", "against grpc-go alone",
			"against the SDK for Node", "p50 added", "CPU of the server per operation"},
	}
	sends, tools, err := r.latencies(ctx)
	if err != nil {
		return t, err
	}
	for _, op := range []struct {
		name  string
		trips roundTrips
	}{{"send", sends}, {"tool call", tools}} {
		for _, way := range ways {
			if sendsOnly(way) && op.name != "send" {
				continue
			}
			l := op.trips.way(way)
			added := fmt.Sprintf("%+.0f", l.p50.median()-op.trips.way("direct").p50.median())
			t.row(op.name, wayNames[way], l.p50.String(), l.p99.String(),
				ratio(l.p50, op.trips.way("direct").p50).String(),
				ratio(l.p50, op.trips.way(relayOf(way)).p50).String(),
				ratio(l.p50, op.trips.way("node").p50).String(), added, busy(way, l))
		}
	}
	return t, nil
}

// ingestTargets are the CPU µs that an event may cost.
var ingestTargets = map[string]float64{"delta": 2.0, "tool1k": 3.5, "msg4k": 9, "msg20k": 35}

func (r *run) ingestTable(ctx context.Context) (Table, error) {
	t := Table{
		Title: "One event: read, translated, kept, sent to one subscriber",
		Note: fmt.Sprintf("CPU µs of the bridge per event, saturated: the CLI writes as fast as it is read, a write "+
			"per event. %d repeats. Delivered live is the share of events that did not end in a gap: below 100 %% "+
			"the figure is too low. "+
			"The last columns are what the processes of official SDKs take for reading the same stream and handing "+
			"it to one handler.", r.cfg.Repeats),
		Header: []string{"event", "bytes of JSON", "CPU", "target", "delivered live", "SDK for Node", "SDK for Python",
			"SDK for Go"},
	}
	all, err := r.ingests(ctx)
	if err != nil {
		return t, err
	}
	for _, p := range r.cfg.payloads() {
		target := "–"
		if figure, ok := ingestTargets[p.Name]; ok {
			target = "≤ " + number(figure)
		}
		t.row(p.Name, fmt.Sprint(p.Size()), all[p.Name].cpu.String(), target, percent(all[p.Name].share),
			all[p.Name].sdk["node"].String(), all[p.Name].sdk["python"].String(), all[p.Name].sdk["go"].String())
	}
	for _, name := range spreadPayloads {
		if got := all[spreadKey(name)]; got != nil {
			t.row(fmt.Sprintf("%s, %d sessions", name, spreadSessions), fmt.Sprint(payload(name).Size()),
				got.cpu.String(), "–",
				percent(got.share), got.sdk["node"].String(), got.sdk["python"].String(), got.sdk["go"].String())
		}
	}
	return t, nil
}

func percent(s sample) string { return fmt.Sprintf("%.0f %%", 100*s.median()) }

func (r *run) fanOutTable(ctx context.Context) (Table, error) {
	t := Table{
		Title: "More subscribers",
		Note: "CPU µs of the bridge per event, saturated, and what each further subscriber adds to it (against one). " +
			"Targets: 0.40 (delta), 1.4 (4 KB) for each further one. Raw is what each further stream costs a grpc-go " +
			"server that has the bytes ready and sends a message for each event, " +
			"with the same settings and subscribers, by turns with the bridge.",
		Header: []string{"event", "subscribers", "connections", "CPU per event", "per further subscriber",
			"raw grpc-go", "against raw", "delivered live"},
	}
	all, err := r.fanOuts(ctx)
	if err != nil {
		return t, err
	}
	for _, payload := range []string{"delta", "msg4k"} {
		for _, n := range fanOut {
			for _, shared := range []bool{false, true} {
				if key := (fanKey{payload, n, shared, false}); all[key] != nil {
					t.row(fanRow(all, key)...)
				}
			}
		}
	}
	return t, nil
}

// fanRow is a row of the fan-out, with what grpc-go takes beside what the bridge does.
func fanRow(all map[fanKey]*ingest, key fanKey) []string {
	f, connections := all[key], fmt.Sprint(key.n)
	if key.shared {
		connections = "1"
	}
	more := func(raw bool) sample {
		one, many := fanKey{key.payload, 1, false, raw}, key
		many.raw = raw
		var added sample
		for i := range min(len(all[one].cpu), len(all[many].cpu)) {
			added.add((all[many].cpu[i] - all[one].cpu[i]) / float64(key.n-1))
		}
		return added
	}
	mine, floor, against := "–", "–", "–"
	if key.n > 1 {
		mine, floor, against = more(false).String(), more(true).String(), ratio(more(false), more(true)).String()
	}
	return []string{key.payload, fmt.Sprint(key.n), connections, f.cpu.String(), mine, floor, against, percent(f.share)}
}

func (r *run) memoryTable(ctx context.Context) (Table, error) {
	t := Table{
		Title: "Memory and start",
		Note: fmt.Sprintf("Memory is the growth of the process's own resident memory over %d sessions, in %d CLIs, "+
			"and %d subscribers, garbage collected. "+
			"Times in ms, with a CLI that starts at once.", crowd, crowd/100, listeners),
		Header: []string{"what", "figure", "target"},
	}
	f, err := r.footprints(ctx)
	if err != nil {
		return t, err
	}
	kb := func(s sample) string { return number(s.median()/1024) + " KB" }
	t.row("a session, loaded and idle", kb(f.idleSession), "≤ 4 KB beside journal and configuration")
	t.row("a subscriber with a separate stream, idle", kb(f.subscriber), "≤ 16 KB")
	t.row(fmt.Sprintf("%d such subscribers", listeners), number(f.subscriber.median()*listeners/(1<<20))+" MB",
		"≤ 160 MB")
	t.row(fmt.Sprintf("a subscriber with a separate stream, after %d events", told), kb(f.streaming), "")
	t.row("a subscriber on a shared stream, idle", kb(f.multiplex), "≤ 2 KB")
	t.row(fmt.Sprintf("%d subscribers on shared streams", listeners),
		number(f.multiplex.median()*listeners/(1<<20))+" MB", "≤ 20 MB")
	t.row("start of the server to its first answer", f.start.String()+" ms", "")
	t.row("first session, the CLI's start included", f.session.String()+" ms", "")
	return t, nil
}
