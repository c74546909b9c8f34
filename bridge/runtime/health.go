package runtime

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
)

// Health is how a runtime was when it was last looked at.
type Health struct {
	// CheckedAt is when that was; zero if it was not yet.
	CheckedAt time.Time
	// Latency is how long the answer to ping took.
	Latency time.Duration
	// RSS is the memory of the process in bytes, 0 if that is not known.
	RSS int64
	// Unanswered counts the calls that were cancelled and that the process never answered.
	Unanswered int
}

type health struct {
	mu   sync.Mutex
	last Health
}

// Health returns the result of the last check.
func (r *Runtime) Health() Health {
	r.health.mu.Lock()
	defer r.health.mu.Unlock()
	return r.health.last
}

// RSS returns the resident memory of the process now, in bytes; 0 if that
// cannot be known, as for a server that was dialled.
func (r *Runtime) RSS() int64 {
	if r.info.Peer.PID == 0 || isDone(r.transport.Done()) {
		return 0
	}
	return residentBytes(r.info.Peer.PID)
}

// check pings once and records what it saw. It returns an error when the
// runtime has to be given up.
func (r *Runtime) check() error {
	begin := time.Now()
	for {
		before := r.conn.Stats()
		err := r.ping()
		if err == nil {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return nil // the connection or the life ended, which watch sees itself
		}
		if after := r.conn.Stats(); after.FramesIn == before.FramesIn && after.Throttled == before.Throttled && !after.Throttling {
			return fault.New(fault.CLIHung, "the copilot CLI has not answered for %v", time.Since(begin).Round(time.Millisecond))
		}
		// It is sending other things, or we do not read: busy, not hung.
		r.cfg.Logger.Warn("runtime is slow to answer", slog.Int("pid", r.info.Peer.PID),
			slog.Duration("waited", time.Since(begin)))
	}
	took := time.Since(begin)
	now := Health{CheckedAt: time.Now(), Latency: took, RSS: r.RSS(), Unanswered: r.conn.Stats().Unanswered}
	r.health.mu.Lock()
	r.health.last = now
	r.health.mu.Unlock()
	if limit := r.cfg.MaxRSS; limit > 0 && now.RSS > limit {
		return fault.New(fault.CLIExited, "the copilot CLI was ended: it had %d bytes of memory, more than %d", now.RSS, limit)
	}
	return nil
}

// ping asks for a sign of life; an error answer is one too.
func (r *Runtime) ping() error {
	ctx, cancel := context.WithTimeout(r.life, r.cfg.PingTimeout)
	defer cancel()
	_, err := r.conn.Call(ctx, "ping", []byte("{}"), rpcconn.Priority())
	if _, ok := errors.AsType[*rpcconn.Error](err); ok {
		return nil
	}
	return err
}
