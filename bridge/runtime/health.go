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

// Health is the result of a runtime's last health check.
type Health struct {
	// CheckedAt is the time of the check; zero if there was none.
	CheckedAt time.Time
	// Latency is the duration of the ping.
	Latency time.Duration
	// RSS is the memory of the process in bytes; 0 if unknown.
	RSS int64
	// Unanswered counts the cancelled calls that the process never answered.
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

// RSS returns the current resident memory of the process in bytes; 0 if unknown, as for a dialled server.
func (r *Runtime) RSS() int64 {
	if r.info.Peer.PID == 0 || isDone(r.transport.Done()) {
		return 0
	}
	return residentBytes(r.info.Peer.PID)
}

// check pings once and records the result. It returns an error if the runtime must be ended.
func (r *Runtime) check() error {
	begin := time.Now()
	for {
		before := r.conn.Stats()
		err := r.ping()
		if err == nil {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return nil // the connection or the runtime ended, which watch detects
		}
		if after := r.conn.Stats(); after.FramesIn == before.FramesIn && after.Throttled == before.Throttled &&
			!after.Throttling {
			return fault.New(fault.CLIHung, "the copilot CLI has not answered for %v",
				time.Since(begin).Round(time.Millisecond))
		}
		// The CLI is sending other data, or the bridge does not read: it is busy and does not hang.
		r.cfg.Logger.Warn("runtime answers slowly", slog.Int("pid", r.info.Peer.PID),
			slog.Duration("waited", time.Since(begin)))
	}
	took := time.Since(begin)
	now := Health{CheckedAt: time.Now(), Latency: took, RSS: r.RSS(), Unanswered: r.conn.Stats().Unanswered}
	r.health.mu.Lock()
	r.health.last = now
	r.health.mu.Unlock()
	if limit := r.cfg.MaxRSS; limit > 0 && now.RSS > limit {
		return fault.New(fault.CLIExited, "the bridge ended the copilot CLI: it used %d bytes of memory, more than %d",
			now.RSS, limit)
	}
	return nil
}

// ping sends a ping. An error reply also proves that the CLI responds.
func (r *Runtime) ping() error {
	ctx, cancel := context.WithTimeout(r.life, r.cfg.PingTimeout)
	defer cancel()
	_, err := r.conn.Call(ctx, "ping", []byte("{}"), rpcconn.Priority())
	if _, ok := errors.AsType[*rpcconn.Error](err); ok {
		return nil
	}
	return err
}
