package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/loadcli"
)

// The points at which the cost of an event is looked at, for what may grow.
var (
	scaleSessions = []int{1, 8, 64, 256, 1000}
	scaleHistory  = []int{0, 5_000, 50_000}
)

// payload returns a payload of the table by its name.
func payload(name string) loadcli.Payload {
	p, err := loadcli.Find(name)
	if err != nil {
		panic(err)
	}
	return p
}

// curve is one of the things that may grow, by how far it has.
type curve struct {
	what, event string
	points      map[int]*ingest
}

// bySessions measures the cost of an event of two kinds when events come to many sessions by turns: with a stream for
// each session, and then with all sessions on one stream.
func (r *run) bySessions(ctx context.Context, b *bridge, own, shared [2]curve) error {
	for _, n := range scaleSessions {
		a, err := newMany(ctx, b, n)
		if err != nil {
			return err
		}
		for _, c := range own {
			if err == nil {
				err = r.point(ctx, a, c, n)
			}
		}
		if err == nil {
			err = a.together(ctx)
		}
		for _, c := range shared {
			if err == nil {
				err = r.point(ctx, a, c, n)
			}
		}
		r.end("audience", a.close)
		if err != nil {
			return fmt.Errorf("%d sessions: %w", n, err)
		}
	}
	return nil
}

// point is a point of a curve.
func (r *run) point(ctx context.Context, a *audience, c curve, at int) error {
	cpu, share, err := a.blast(ctx, c.event, r.events(payload(c.event), 2))
	if err == nil {
		record(c.points, at, cpu, share)
	}
	return err
}

// byHistory measures what an event costs in a session that has had many.
func (r *run) byHistory(ctx context.Context, b *bridge, name string, out map[int]*ingest) error {
	a, err := newAudience(ctx, b, 1, false)
	if err != nil {
		return err
	}
	defer r.end("audience", a.close)
	had := 0
	for _, n := range scaleHistory {
		if n > had {
			if _, _, err := a.blast(ctx, name, n-had); err != nil {
				return err
			}
			had = n
		}
		events := r.events(payload(name), 4)
		cpu, share, err := a.blast(ctx, name, events)
		if err != nil {
			return err
		}
		had += events
		record(out, n, cpu, share)
	}
	return nil
}

func (r *run) scaleTable(ctx context.Context) (Table, error) {
	t := Table{
		Title: "Cost of an event under growth",
		Note: "CPU µs of the bridge per event, saturated. Sessions are 100 to a CLI, which sends to its own by " +
			"turns; their subscribers are on one connection, each with a separate stream, " +
			"so that nothing can be sent together that is not of one session, or all on one stream. History is what " +
			"the session has had before, in events of 1 KB.",
		Header: []string{"what grows", "event", "to", "CPU per event", "against the first", "delivered live"},
	}
	b, err := r.startBridge(ctx, r.cfg.LoadCLI)
	if err != nil {
		return t, err
	}
	defer r.end("bridge", b.stop)
	curves := func(what string) [2]curve {
		return [2]curve{{what, "delta", map[int]*ingest{}}, {what, "tool1k", map[int]*ingest{}}}
	}
	own, shared := curves("sessions"), curves("sessions on one stream")
	history := curve{"history", "tool1k", map[int]*ingest{}}
	for range r.cfg.Repeats {
		if err := errors.Join(r.bySessions(ctx, b, own, shared),
			r.byHistory(ctx, b, history.event, history.points)); err != nil {
			return t, err
		}
	}
	for _, c := range []curve{own[0], own[1], shared[0], shared[1], history} {
		keys := slices.Sorted(maps.Keys(c.points))
		for _, n := range keys {
			p := c.points[n]
			t.row(c.what, c.event, fmt.Sprint(n), p.cpu.String(), ratio(p.cpu, c.points[keys[0]].cpu).String(),
				percent(p.share))
		}
	}
	return t, nil
}

const (
	// stormReaders replay at once, stormEvents each, over stormConns connections.
	stormReaders, stormEvents, stormConns = 1_000, 1_000, 10
)

// storm has many readers replay a session's history at once: CPU µs of the bridge per
// event and reader, and the seconds until all have it.
func (r *run) storm(ctx context.Context, b *bridge, name string) (cpu, took, share float64, err error) {
	a, err := newAudience(ctx, b, 1, false)
	if err != nil {
		return 0, 0, 0, err
	}
	defer r.end("audience", a.close)
	if _, _, err := a.blast(ctx, name, stormEvents); err != nil {
		return 0, 0, 0, err
	}
	for range stormConns {
		if err := a.dial(ctx); err != nil {
			return 0, 0, 0, err
		}
	}
	streams, cancel := context.WithCancel(ctx)
	defer cancel()
	before, err := b.cpu()
	if err != nil {
		return 0, 0, 0, err
	}
	begin := time.Now()
	counts, errs := make([]int, stormReaders), make([]error, stormReaders)
	var all sync.WaitGroup
	for i := range stormReaders {
		all.Go(func() {
			s, err := openStream(streams, a.conns[1+i%stormConns].Conn(),
				bridgev1.StreamStart_STREAM_START_BEGINNING, a.sessions[0])
			if err == nil {
				counts[i], err = s.await()
			}
			errs[i] = err
		})
	}
	all.Wait()
	took = time.Since(begin).Seconds()
	after, err := b.cpu()
	came := 0
	for _, c := range counts {
		came += c
	}
	total := float64(stormReaders * stormEvents)
	return micros(after-before) / total, took, min(1, float64(came)/total), errors.Join(append(errs, err)...)
}

func (r *run) stormTable(ctx context.Context) (Table, error) {
	t := Table{
		Title: "Simultaneous replay",
		Note: fmt.Sprintf("%d readers over %d connections replay the same %d events from the beginning, all at the "+
			"same time: after a network failure, say. "+
			"CPU µs of the bridge per event and reader.", stormReaders, stormConns, stormEvents),
		Header: []string{"event", "CPU per event and reader", "until all have all, s", "delivered"},
	}
	b, err := r.startBridge(ctx, r.cfg.LoadCLI)
	if err != nil {
		return t, err
	}
	defer r.end("bridge", b.stop)
	for _, name := range []string{"delta", "tool1k"} {
		var cpu, took, share sample
		for range min(3, r.cfg.Repeats) {
			c, s, got, err := r.storm(ctx, b, name)
			if err != nil {
				return t, err
			}
			cpu.add(c)
			took.add(s)
			share.add(got)
		}
		t.row(name, cpu.String(), took.String(), percent(share))
	}
	return t, nil
}
