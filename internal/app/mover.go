package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster"
)

const (
	// movesAtOnce is how many sessions a replica hands over at a time.
	movesAtOnce = 4
	// moveTimeout bounds one hand-over, and the restoration of a session whose hand-over failed.
	moveTimeout = 30 * time.Second
	// movePause is the pause before a session that was in use is tried again; each later one is twice as long, up to
	// maxMovePause.
	movePause, maxMovePause = 100 * time.Millisecond, 5 * time.Second
	// leavePatience is how long a replica that stops waits for uses of its sessions that are no turns.
	leavePatience = 2 * time.Second
)

// errInUse reports a session that is not at rest.
var errInUse = errors.New("the session is in use")

// errNoTaker reports that all other replicas drain, or that there is none.
var errNoTaker error = fault.New(fault.NodesDraining, "no other replica of the cluster takes sessions")

// mover hands sessions of this replica over to others. It is safe for concurrent use. Its mutex guards the map. Its
// goroutines end with the calls that start them.
type mover struct {
	*member
	// slots has movesAtOnce places.
	slots chan struct{}
	log   *slog.Logger

	mu      sync.Mutex
	leaving map[string]chan struct{} // each is closed when its session has left, or stays
}

// await waits while a session leaves, for as long as ctx lasts.
func (m *mover) await(ctx context.Context, key string) error {
	m.mu.Lock()
	over := m.leaving[key]
	m.mu.Unlock()
	if over == nil {
		return nil
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin notes that a session leaves; ok is false if it leaves already.
func (m *mover) begin(key string) (end func(), ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaving[key] != nil {
		return nil, false
	}
	over := make(chan struct{})
	m.leaving[key] = over
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.leaving, key)
		close(over)
	}, true
}

// move hands a session over to a member. The error is errInUse if it is not at rest; with quiet, also if it has a
// participant or a subscriber, or was used a moment ago.
func (m *mover) move(ctx context.Context, key, to string, quiet bool) error {
	end, ok := m.begin(key)
	if !ok {
		return errInUse
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	left, err := m.bridge.Store().HandOver(ctx, key, quiet, func() error {
		// The session is not in memory: the end of the caller must not leave it like that.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), moveTimeout)
		defer cancel()
		return m.directory.HandOver(ctx, key, to)
	})
	switch {
	case left && err != nil:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), moveTimeout)
		defer cancel()
		_, again := m.claim(ctx, key)
		return fault.Wrap(errors.Join(err, again), fault.SessionUnavailable,
			"session %q cannot be moved: its storage does not work at the moment", key).WithRetry(time.Second).With("session_id", key)
	case err != nil:
		return err
	case !left:
		return errInUse
	}
	m.log.Info("a session has moved to another replica", "session_id", key, "member", to)
	return nil
}

// moveAtRest is move for a session that may be in use: it waits for the end of its turn, for as long as ctx lasts, and
// then for the end of other uses, for patience at most. It returns SESSION_BUSY if that was too short. It asks for the
// member when it is about to move.
func (m *mover) moveAtRest(
	ctx context.Context, key string, patience time.Duration, to func() (cluster.Member, error),
) error {
	var tried time.Time
	for pause := movePause; ; pause = min(2*pause, maxMovePause) {
		err := m.bridge.AwaitRest(ctx, key)
		if err == nil {
			err = m.tryMove(ctx, key, to)
		}
		if err == nil || ctx.Err() == nil && !errors.Is(err, errInUse) {
			return err
		}
		if tried.IsZero() {
			tried = time.Now()
		}
		if time.Since(tried) < patience {
			select {
			case <-time.After(min(pause, patience)):
				continue
			case <-ctx.Done():
			}
		}
		return fault.New(fault.SessionBusy, "the session is in use")
	}
}

// tryMove is move to a member that it asks for, when one of the slots is free.
func (m *mover) tryMove(ctx context.Context, key string, to func() (cluster.Member, error)) error {
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	member, err := to()
	if err != nil {
		return err
	}
	return m.move(ctx, key, member.ID, false)
}

// heir returns the member that takes a session after this replica.
func (m *mover) heir(key string) (cluster.Member, error) {
	next, ok := m.node.Heir(key)
	switch {
	case ok:
		return next, nil
	case m.node.Needs(key) != nil:
		return next, sessions.NodesUnfit(m.node.Needs(key))
	}
	return next, errNoTaker
}

// empty hands over all sessions of this replica that have no credentials, each as moveAtRest does. It returns how many
// it has moved.
func (m *mover) empty(ctx context.Context, patience time.Duration) (moved int64) {
	var wg sync.WaitGroup
	var done atomic.Int64
	for _, key := range m.directory.Owned() {
		if len(m.bridge.Credentials(key)) > 0 {
			continue
		}
		wg.Go(func() {
			err := m.moveAtRest(ctx, key, patience, func() (cluster.Member, error) { return m.heir(key) })
			switch {
			case err == nil:
				done.Add(1)
			case fault.ReasonOf(err) != fault.SessionBusy:
				m.log.Warn("a session did not move", "session_id", key, "error", err)
			}
		})
	}
	wg.Wait()
	return done.Load()
}
