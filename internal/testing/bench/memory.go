package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/loadcli"
)

const (
	// crowd is how many sessions share a measurement of memory. They are in several CLIs.
	crowd = 1000
	// listeners is how many subscribers do: as many on each session, over some connections,
	// since one carries at most 1024 streams.
	listeners, listenerConns = 10 * crowd, 16
)

// settling is how long the collector gets to clear up. The server runs under a memory
// limit that it cannot keep, so that it collects all the time.
const settling = 3 * time.Second

// footprint is what idle things take, in bytes each, and how long a start takes.
type footprint struct {
	start, session        sample // ms
	idleSession           sample
	subscriber, multiplex sample
	streaming             sample // a subscriber that has had events
}

func (r *run) footprints(ctx context.Context) (footprint, error) {
	var f footprint
	for range r.cfg.Repeats {
		if err := r.startUp(ctx, &f); err != nil {
			return f, err
		}
	}
	return f, r.crowds(ctx, &f)
}

// startUp times a start with nothing else going on.
func (r *run) startUp(ctx context.Context, f *footprint) error {
	b, err := r.startBridge(ctx, r.cfg.LoadCLI)
	if err != nil {
		return err
	}
	defer r.end("bridge", b.stop)
	f.start.add(micros(b.ready) / 1e3)
	c, err := b.dial(ctx, false)
	if err != nil {
		return err
	}
	defer r.end("client", c.Close)
	begin := time.Now()
	_, err = c.Sessions().CreateSession(ctx, &bridgev1.CreateSessionRequest{})
	f.session.add(micros(time.Since(begin)) / 1e3)
	return err
}

// crowds measures sessions, then a stream for each of them, then all on one stream.
func (r *run) crowds(ctx context.Context, f *footprint) error {
	b, err := r.startBridge(ctx, r.cfg.LoadCLI, "GOMEMLIMIT=1")
	if err != nil {
		return err
	}
	defer r.end("bridge", b.stop)
	c, err := b.dial(ctx, true)
	if err != nil {
		return err
	}
	defer r.end("client", c.Close)
	ids, err := createMany(ctx, c, 1) // what the first of anything takes is not counted
	if err != nil {
		return err
	}
	grown, err := growth(b, func() error {
		more, err := createMany(ctx, c, crowd)
		ids = append(ids, more...)
		return err
	})
	if err != nil {
		return err
	}
	f.idleSession.add(grown / crowd)
	conns := make([]*copilot.Client, 0, listenerConns)
	defer func() {
		for _, conn := range conns {
			r.end("client", conn.Close)
		}
	}()
	for range listenerConns {
		conn, err := b.dial(ctx, true)
		if err != nil {
			return err
		}
		conns = append(conns, conn)
	}
	streams, cancel := context.WithCancel(ctx)
	defer cancel() // all stay until the last has been measured
	if f.multiplex, _, err = r.listen(streams, b, conns, ids[1:], crowd); err != nil {
		return err
	}
	var subs []*subscriber
	if f.subscriber, subs, err = r.listen(streams, b, conns, ids[1:], 1); err != nil {
		return err
	}
	grown, err = growth(b, func() error { return tell(ctx, c, ids[1:], subs) })
	f.streaming.add(f.subscriber.median() + grown/listeners)
	return err
}

// told is how many events a subscriber has had that counts as streaming: few, since what
// sessions keep of them is not what is measured.
const told = 8

// tell has each session's CLI send events, and the subscribers read them.
func tell(ctx context.Context, c *copilot.Client, ids []string, subs []*subscriber) error {
	var all sync.WaitGroup
	errs := make([]error, len(subs))
	for i, s := range subs {
		all.Go(func() { _, errs[i] = s.await() })
	}
	for _, id := range ids {
		if _, err := c.Sessions().Send(ctx, &bridgev1.SendRequest{
			SessionId: id, Prompt: &bridgev1.Prompt{Text: fmt.Sprintf("%s delta %d", loadcli.PromptBlast, told)},
		}); err != nil {
			return err
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// listen opens idle subscribers on the sessions, a given number of them on a stream, and measures the memory of each.
func (r *run) listen(
	ctx context.Context, b *bridge, conns []*copilot.Client, ids []string, together int,
) (sample, []*subscriber, error) {
	var subs []*subscriber
	grown, err := growth(b, func() error {
		for i := range listeners / together {
			at := i * together % len(ids)
			s, err := subscribe(ctx, conns[i%len(conns)].Conn(), ids[at:at+together]...)
			if err != nil {
				return err
			}
			subs = append(subs, s)
		}
		return nil
	})
	return sample{grown / listeners}, subs, err
}

func createMany(ctx context.Context, c *copilot.Client, n int) ([]string, error) {
	var ids []string
	for range n {
		s, err := c.Sessions().CreateSession(ctx, &bridgev1.CreateSessionRequest{})
		if err != nil {
			return nil, fmt.Errorf("create session %d: %w", len(ids)+1, err)
		}
		ids = append(ids, s.GetSession().GetSessionId())
	}
	return ids, nil
}

// growth is by how many bytes the bridge grows through what f does.
func growth(b *bridge, f func() error) (float64, error) {
	time.Sleep(settling)
	before, err := b.anonymous()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	time.Sleep(settling)
	after, err := b.anonymous()
	return after - before, err
}

// anonymous returns the bytes of the bridge's memory that are its own.
func (b *bridge) anonymous() (float64, error) {
	p, err := procfs.NewProc(b.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	status, err := p.NewStatus()
	return float64(status.RssAnon), err
}
