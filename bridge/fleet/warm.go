package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fleet/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

const (
	// warmTimeout bounds the wait for the start of a spare runtime.
	warmTimeout = 2 * time.Minute
	// warmRetry is the time between attempts to start a spare runtime that fails to start.
	warmRetry = time.Minute
)

// warmer starts spare runtimes in the background, one at a time for each profile.
type warmer struct {
	mu sync.Mutex
	// after has, by the hash of a profile, when it may be started again: the zero time while it starts.
	after map[string]time.Time
}

// begin reports whether the runtime of a profile may be started now.
func (w *warmer) begin(hash string, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	after, known := w.after[hash]
	if known && (after.IsZero() || now.Before(after)) {
		return false
	}
	if w.after == nil {
		w.after = map[string]time.Time{}
	}
	w.after[hash] = time.Time{}
	return true
}

// end notes the end of an attempt. A failed one may be repeated at retry.
func (w *warmer) end(hash string, failed bool, retry time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.after, hash)
	if failed {
		w.after[hash] = retry
	}
}

// startSpares starts runtimes in the background until each tenant has as many with room for a session as Config.Warm
// says. Limits of runtimes apply.
func (f *Fleet) startSpares() {
	if f.cfg.Warm == nil {
		return
	}
	wanted := f.cfg.Warm()
	spares := map[string]int{}
	for tenant, n := range wanted {
		own := f.cfg.Tenants.ProfileOf(tenant)
		p, err := f.cfg.Tenants.Confined(own, own)
		if err != nil {
			continue // the policy has just removed the tenant
		}
		spares[placement.Key(p)] = n
		found, err := f.table.Spares(p, n)
		if err != nil {
			f.log.Debug("no room for a spare runtime", "tenant", tenant, "error", err)
		}
		for _, spare := range found {
			f.startSpare(spare)
		}
	}
	f.table.KeepSpares(spares)
}

// startSpare starts the runtime of exactly this profile in the background, unless it runs.
func (f *Fleet) startSpare(p runtime.Profile) {
	hash := p.Hash()
	if f.runtimes.find(func(rt *Runtime) bool { return rt.profile.Hash() == hash && rt.usable() }) != nil {
		return
	}
	if !f.warmer.begin(hash, time.Now()) {
		return
	}
	f.cfg.Shutdown.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, warmTimeout)
		defer cancel()
		_, err := f.up(ctx, p)
		f.warmer.end(hash, err != nil, time.Now().Add(warmRetry))
		if err != nil && f.cfg.Shutdown.Accepting() == nil {
			f.log.Warn("starting a spare runtime failed", "tenant", p.Tenant, "error", err)
		}
	})
}

// usable reports whether the runtime runs and may load sessions.
func (rt *Runtime) usable() bool {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	return rt.lost == nil && !rt.ending()
}
