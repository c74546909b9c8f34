package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/bridge/fleet/placement"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/loadcli"
)

// audience is sessions with subscribers.
type audience struct {
	bridge   *bridge
	sessions []string
	conns    []*copilot.Client
	subs     []*subscriber
	// ctx is that of the streams.
	ctx    context.Context
	cancel context.CancelFunc
}

// blastLimit is when events that have not come will not come any more.
const blastLimit = 2 * time.Minute

// newAudience creates a session with n subscribers, who share a connection or have one
// each.
func newAudience(ctx context.Context, b *bridge, n int, shared bool) (*audience, error) {
	a := &audience{bridge: b}
	a.ctx, a.cancel = context.WithCancel(ctx)
	err := a.create(ctx, 1)
	for i := 0; i < n && err == nil; i++ {
		if i > 0 && !shared {
			err = a.dial(ctx)
		}
		if err == nil {
			err = a.subscribe(a.sessions[0])
		}
	}
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// newMany creates n sessions, each with a subscriber, all on one connection.
func newMany(ctx context.Context, b *bridge, n int) (*audience, error) {
	a := &audience{bridge: b}
	a.ctx, a.cancel = context.WithCancel(ctx)
	err := a.create(ctx, n)
	for i := 0; i < n && err == nil; i++ {
		err = a.subscribe(a.sessions[i])
	}
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// together has the sessions share a stream in place of separate ones.
func (a *audience) together(ctx context.Context) error {
	a.cancel()
	a.subs = nil
	a.ctx, a.cancel = context.WithCancel(ctx)
	return a.subscribe(a.sessions...)
}

func (a *audience) dial(ctx context.Context) error {
	c, err := a.bridge.dial(ctx, true)
	if err == nil {
		a.conns = append(a.conns, c)
	}
	return err
}

// create dials and creates n sessions.
func (a *audience) create(ctx context.Context, n int) error {
	err := a.dial(ctx)
	if err == nil {
		a.sessions, err = createMany(ctx, a.conns[0], n)
	}
	return err
}

// subscribe adds a subscriber on the last connection.
func (a *audience) subscribe(sessions ...string) error {
	s, err := subscribe(a.ctx, a.conns[len(a.conns)-1].Conn(), sessions...)
	if err == nil {
		a.subs = append(a.subs, s)
	}
	return err
}

// blast has the CLI send n events, by turns to the sessions, and returns when all
// subscribers have theirs: the CPU time of the bridge per event, and the share of events
// that came to the subscribers.
func (a *audience) blast(ctx context.Context, payload string, n int) (cpu, share float64, err error) {
	if err := a.bridge.settle(ctx); err != nil {
		return 0, 0, err
	}
	before, err := a.bridge.cpu()
	if err != nil {
		return 0, 0, err
	}
	defer time.AfterFunc(blastLimit, a.cancel).Stop()
	counts, errs := make([]int, len(a.subs)), make([]error, len(a.subs))
	var all sync.WaitGroup
	for i, s := range a.subs {
		all.Go(func() { counts[i], errs[i] = s.await() })
	}
	prompt, each := loadcli.PromptBlast, len(a.subs)
	if len(a.sessions) > 1 {
		prompt, each = loadcli.PromptSpread, 1
	}
	// A CLI takes so many sessions before there is another.
	for i := 0; i < len(a.sessions); i += placement.DefaultMaxSessions {
		part := n * min(placement.DefaultMaxSessions, len(a.sessions)-i) / len(a.sessions)
		_, err = a.conns[0].Sessions().Send(ctx, &bridgev1.SendRequest{
			SessionId: a.sessions[i], Prompt: &bridgev1.Prompt{Text: fmt.Sprintf("%s %s %d", prompt, payload, part)},
		}, grpc.WaitForReady(true))
		if err != nil {
			return 0, 0, err
		}
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
	return micros(after-before) / float64(n), min(1, float64(came)/float64(n*each)), err
}

// close ends the subscribers and deletes the sessions: what they have kept must not weigh
// on what is measured next.
func (a *audience) close() error {
	var errs []error
	for _, id := range a.sessions {
		_, err := a.conns[0].Sessions().DeleteSession(context.Background(),
			&bridgev1.DeleteSessionRequest{SessionId: id})
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

// ingest is what an event costs: µs of the bridge, the share that was delivered, and µs
// of the SDKs.
type ingest struct {
	cpu, share sample
	sdk        map[string]sample
}

// record notes what an event took in a repeat.
func record[K comparable](out map[K]*ingest, key K, cpu, share float64) {
	if out[key] == nil {
		out[key] = &ingest{sdk: map[string]sample{}}
	}
	out[key].cpu.add(cpu)
	out[key].share.add(share)
}

func (i *ingest) bySDK(name string, cpu float64) { i.sdk[name] = append(i.sdk[name], cpu) }

// sdkShare is by how much fewer events the SDKs are sent.
const sdkShare = 4

// ingests blasts each payload at one subscriber, and at the SDKs.
func (r *run) ingests(ctx context.Context) (map[string]*ingest, error) {
	drivers := r.drivers(ctx, r.cfg.LoadCLI, nil)
	defer func() {
		for name, d := range drivers {
			r.end(name, d.close)
		}
	}()
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
		for _, p := range r.cfg.payloads() {
			cpu, share, err := a.blast(ctx, p.Name, r.events(p, 1))
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", p.Name, err), a.close())
			}
			if i == 0 { // the first round warms up
				continue
			}
			record(out, p.Name, cpu, share)
			for name, d := range drivers {
				cpu, err := d.blast(loadcli.PromptBlast, p.Name, r.events(p, sdkShare))
				if err != nil {
					return nil, errors.Join(fmt.Errorf("%s to the SDK for %s: %w", p.Name, name, err), a.close())
				}
				out[p.Name].bySDK(name, cpu)
			}
		}
		r.end("audience", a.close)
	}
	return out, r.spreads(ctx, b, drivers, out)
}

// spreadSessions share a stream of events, of the payloads named.
const spreadSessions = 64

var spreadPayloads = []string{"delta", "tool1k"}

func spreadKey(name string) string { return name + " spread" }

// spreads blasts at many sessions of one CLI by turns: of the bridge, each with a subscriber,
// and of the SDKs.
func (r *run) spreads(ctx context.Context, b *bridge, drivers map[string]*driver, out map[string]*ingest) error {
	for name, d := range drivers {
		if _, err := d.order("more %d", spreadSessions-1); err != nil {
			return fmt.Errorf("sessions of the SDK for %s: %w", name, err)
		}
	}
	for _, p := range r.cfg.payloads() {
		if !slices.Contains(spreadPayloads, p.Name) {
			continue
		}
		key := spreadKey(p.Name)
		for range r.cfg.Repeats {
			a, err := newMany(ctx, b, spreadSessions)
			if err != nil {
				return err
			}
			cpu, share, err := a.blast(ctx, p.Name, r.events(p, 2))
			r.end("audience", a.close)
			if err != nil {
				return err
			}
			record(out, key, cpu, share)
			for sdk, d := range drivers {
				cpu, err := d.blast(loadcli.PromptSpread, p.Name, r.events(p, 2*sdkShare))
				if err != nil {
					return fmt.Errorf("%s to sessions of the SDK for %s: %w", p.Name, sdk, err)
				}
				out[key].bySDK(sdk, cpu)
			}
		}
	}
	return nil
}

// fanOut is the audience sizes that are measured.
var fanOut = []int{1, 8, 64, 512}

// fanKey is one cell of the fan-out.
type fanKey struct {
	payload string
	n       int
	shared  bool
	raw     bool // grpc-go sending ready bytes
}

// fanOuts blasts two payloads at audiences of several sizes, of the bridge and of a gRPC
// server that has the bytes ready.
func (r *run) fanOuts(ctx context.Context) (map[fanKey]*ingest, error) {
	b, err := r.startBridge(ctx, r.cfg.LoadCLI)
	if err != nil {
		return nil, err
	}
	defer r.end("bridge", b.stop)
	out := map[fanKey]*ingest{}
	for i := range r.cfg.Repeats + 1 {
		// A new server each time, since streams that have gone weigh on it.
		raw, err := r.startRaw(ctx)
		if err != nil {
			return nil, err
		}
		err = r.fanRound(ctx, map[bool]*bridge{false: b, true: raw}, i > 0, out)
		r.end("raw server", raw.stop)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (r *run) fanRound(ctx context.Context, servers map[bool]*bridge, counts bool, out map[fanKey]*ingest) error {
	for _, n := range fanOut {
		for _, shared := range []bool{false, true} {
			for raw, b := range servers {
				if n == 1 && shared {
					continue
				}
				if err := r.fan(ctx, b, fanKey{n: n, shared: shared, raw: raw}, counts, out); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *run) fan(ctx context.Context, b *bridge, key fanKey, counts bool, out map[fanKey]*ingest) error {
	a, err := newAudience(ctx, b, key.n, key.shared)
	if err != nil {
		return err
	}
	defer r.end("audience", a.close)
	for _, p := range r.cfg.payloads() {
		if p.Name != "delta" && p.Name != "msg4k" {
			continue
		}
		key.payload = p.Name
		cpu, share, err := a.blast(ctx, p.Name, r.events(p, max(1, key.n/4)))
		if err != nil {
			return fmt.Errorf("%s to %d: %w", p.Name, key.n, err)
		}
		if counts {
			record(out, key, cpu, share)
		}
	}
	return nil
}
