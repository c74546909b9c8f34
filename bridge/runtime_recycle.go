package bridge

import (
	"context"
	"fmt"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

const (
	// moveIdle is for how long nothing may have gone on in a session that is to leave a
	// runtime.
	moveIdle = time.Second
	// retireTimeout bounds the orderly end of a runtime that no session is in.
	retireTimeout = 30 * time.Second
	// maxUnanswered is how many cancelled calls a runtime may leave unanswered.
	maxUnanswered = 2048
)

// Wear says when a runtime has served its time. Zero sets no limit.
type Wear struct {
	// Age is how long it may serve.
	Age time.Duration
	// RSS is how much memory it may have, in bytes.
	RSS int64
	// Latency is how long it may take to answer a ping.
	Latency time.Duration
}

// of returns why a runtime of an age has served its time, "" when it has not.
func (w Wear) of(age time.Duration, health runtime.Health) string {
	switch {
	case w.Age > 0 && age >= w.Age:
		return fmt.Sprintf("it is %v old", age.Round(time.Second))
	case w.RSS > 0 && health.RSS >= w.RSS:
		return fmt.Sprintf("it has %d bytes of memory", health.RSS)
	case w.Latency > 0 && health.Latency >= w.Latency:
		return fmt.Sprintf("it took %v to answer", health.Latency.Round(time.Millisecond))
	case health.Unanswered >= maxUnanswered:
		return fmt.Sprintf("it has not answered %d cancelled calls", health.Unanswered)
	}
	return ""
}

// Releaser is a keeper of runtimes that can let go of one: it goes on, but whoever asks
// for a runtime gets another. Without it, worn runtimes serve on.
type Releaser interface {
	// Release lets go of a runtime and reports whether it had it. Whoever asked for that
	// ends the runtime.
	Release(rt *runtime.Runtime) bool
}

// recycle replaces the runtimes that have served their time: sessions move to a new one
// when nothing goes on in them, and the old one ends when it has none. It adds those that
// are to move to a list.
func (b *Bridge) recycle(list []resting) []resting {
	releaser, ok := b.runtimes.(Releaser)
	if !ok {
		return list
	}
	bindings := b.fleet.All()
	for _, bind := range bindings {
		rt := bind.runtime()
		if bind.Err() != nil || bind.retiring {
			continue
		}
		if !bind.leaving {
			why := b.tuned.Load().Wear.of(time.Since(rt.Info().StartedAt), rt.Health())
			if why == "" || !releaser.Release(rt) {
				continue
			}
			bind.mu.Lock()
			bind.leaving = true
			bind.mu.Unlock()
			b.log.Info("runtime is being replaced", "runtime_id", bind.id, "reason", why)
			continue // whoever has just got it has until the next time to put something in it
		}
		sessions := bind.loaded()
		for _, s := range sessions {
			list = rests(list, s, moveIdle)
		}
		if len(sessions) == 0 {
			b.retireRuntime(bind)
		}
	}
	return list
}

// retireRuntime ends a runtime that no session is in.
func (b *Bridge) retireRuntime(bind *binding) {
	bind.retiring = true
	b.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, retireTimeout)
		defer cancel()
		_ = bind.runtime().Stop(ctx) // never fails
	})
}

// loaded lists the sessions of a runtime.
func (bind *binding) loaded() []*session.Session {
	bind.mu.RLock()
	defer bind.mu.RUnlock()
	out := make([]*session.Session, 0, len(bind.sessions))
	for _, s := range bind.sessions {
		out = append(out, s)
	}
	return out
}
