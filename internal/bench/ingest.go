package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/bench/loadcli"
)

// audience is a session with subscribers.
type audience struct {
	bridge  *bridge
	session string
	conns   []*copilot.Client
	subs    []*subscriber
	cancel  context.CancelFunc
}

// newAudience creates a session with n subscribers, who share a connection or have one
// each.
func newAudience(ctx context.Context, b *bridge, n int, shared bool) (*audience, error) {
	ctx, cancel := context.WithCancel(ctx)
	a := &audience{bridge: b, cancel: cancel}
	if err := a.gather(ctx, n, shared); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *audience) gather(ctx context.Context, n int, shared bool) error {
	for i := range n {
		if i == 0 || !shared {
			c, err := a.bridge.dial(ctx, true)
			if err != nil {
				return err
			}
			a.conns = append(a.conns, c)
		}
		if i == 0 {
			r, err := a.conns[0].Sessions().CreateSession(ctx, &bridgev1.CreateSessionRequest{})
			if err != nil {
				return err
			}
			a.session = r.GetSession().GetSessionId()
		}
		s, err := subscribe(ctx, a.conns[len(a.conns)-1].Conn(), a.session)
		if err != nil {
			return err
		}
		a.subs = append(a.subs, s)
	}
	return nil
}

// blast has the CLI send n events and returns when all subscribers have them: the CPU
// time of the bridge per event, and the share of events that came to the subscribers.
func (a *audience) blast(ctx context.Context, payload string, n int) (cpu, share float64, err error) {
	before, err := a.bridge.cpu()
	if err != nil {
		return 0, 0, err
	}
	counts, errs := make([]int, len(a.subs)), make([]error, len(a.subs))
	var all sync.WaitGroup
	for i, s := range a.subs {
		all.Go(func() { counts[i], errs[i] = s.await() })
	}
	_, err = a.conns[0].Sessions().Send(ctx, &bridgev1.SendRequest{
		SessionId: a.session, Prompt: &bridgev1.Prompt{Text: fmt.Sprintf("%s %s %d", loadcli.PromptBlast, payload, n)},
	}, grpc.WaitForReady(true))
	if err != nil {
		return 0, 0, err
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, 0, err
	}
	after, err := a.bridge.cpu()
	came := 0
	for _, c := range counts {
		came += c
	}
	return micros(after-before) / float64(n), min(1, float64(came)/float64(n*len(a.subs))), err
}

// close ends the subscribers and deletes the session: what it has kept must not weigh
// on what is measured next.
func (a *audience) close() error {
	var errs []error
	if a.session != "" {
		_, err := a.conns[0].Sessions().DeleteSession(context.Background(), &bridgev1.DeleteSessionRequest{SessionId: a.session})
		errs = append(errs, err)
	}
	a.cancel()
	for _, c := range a.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// events is how many events of a payload make a repeat: as many bytes of each.
func (r *run) events(p loadcli.Payload, share int) int {
	return max(200, r.cfg.BlastBytes/p.Size()/share)
}

// ingest is what an event costs: µs of the bridge, and the share that was delivered.
type ingest struct{ cpu, share sample }

// ingests blasts each payload at one subscriber.
func (r *run) ingests(ctx context.Context) (map[string]*ingest, error) {
	b, err := r.startBridge(ctx, r.cfg.LoadCLI)
	if err != nil {
		return nil, err
	}
	defer r.end("bridge", b.stop)
	out := map[string]*ingest{}
	for i := range r.cfg.Repeats + 1 {
		// A session each time: what one has kept must not weigh on the next.
		a, err := newAudience(ctx, b, 1, false)
		if err != nil {
			return nil, err
		}
		for _, p := range r.payloads() {
			cpu, share, err := a.blast(ctx, p.Name, r.events(p, 1))
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", p.Name, err), a.close())
			}
			if i == 0 {
				out[p.Name] = &ingest{}
				continue
			}
			out[p.Name].cpu.add(cpu)
			out[p.Name].share.add(share)
		}
		r.end("audience", a.close)
	}
	return out, nil
}

// fanOut is the audience sizes that are measured.
var fanOut = []int{1, 8, 64}

// fanKey is one cell of the fan-out.
type fanKey struct {
	payload string
	n       int
	shared  bool
}

// fanOuts blasts two payloads at audiences of several sizes.
func (r *run) fanOuts(ctx context.Context) (map[fanKey]*ingest, error) {
	b, err := r.startBridge(ctx, r.cfg.LoadCLI)
	if err != nil {
		return nil, err
	}
	defer r.end("bridge", b.stop)
	out := map[fanKey]*ingest{}
	for i := range r.cfg.Repeats + 1 {
		for _, n := range fanOut {
			for _, shared := range []bool{false, true} {
				if n == 1 && shared {
					continue
				}
				if err := r.fan(ctx, b, n, shared, i > 0, out); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

func (r *run) fan(ctx context.Context, b *bridge, n int, shared, counts bool, out map[fanKey]*ingest) error {
	a, err := newAudience(ctx, b, n, shared)
	if err != nil {
		return err
	}
	defer r.end("audience", a.close)
	for _, p := range r.payloads() {
		if p.Name != "delta" && p.Name != "msg4k" {
			continue
		}
		cpu, share, err := a.blast(ctx, p.Name, r.events(p, max(1, n/4)))
		if err != nil {
			return fmt.Errorf("%s to %d: %w", p.Name, n, err)
		}
		key := fanKey{p.Name, n, shared}
		if out[key] == nil {
			out[key] = &ingest{}
		}
		if counts {
			out[key].cpu.add(cpu)
			out[key].share.add(share)
		}
	}
	return nil
}
