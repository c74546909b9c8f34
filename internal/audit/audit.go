// Package audit writes the entries of bridge/audit to a file or another writer. Log has a queue,
// guarded by its mutex, and one goroutine that writes, which Close ends.
package audit

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
)

// MaxQueue bounds the waiting entries. Further ones are dropped and counted, and the next written entry has the
// count, so that callers never wait for the log.
const MaxQueue = 4096

// maxText bounds each text of an entry: names come from callers.
const maxText = 256

// Log is an audit.Sink that writes entries. Its methods may be called from any goroutine.
type Log struct {
	out  slog.Handler
	fail func(error)
	now  func() time.Time
	// failing: the last line could not be written. Only the Log's goroutine uses it.
	failing bool

	queue chan record
	done  chan struct{}

	mu     sync.Mutex
	closed bool

	missed                  atomic.Int64 // since the last entry that was written
	written, dropped, broke atomic.Int64
}

type record struct {
	at  time.Time
	who caller.Caller
	e   audit.Entry
}

// New returns a Log that writes to w, in lines of JSON. fail is called for the first of successive entries that could
// not be written. Each line has the members of attrs too. The caller must Close the Log.
func New(w io.Writer, fail func(error), attrs ...slog.Attr) *Log {
	l := &Log{
		out:  slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: plain}).WithAttrs(attrs),
		fail: fail, now: time.Now,
		queue: make(chan record, MaxQueue), done: make(chan struct{}),
	}
	go l.write()
	return l
}

// plain leaves out the level, which is always the same.
func plain(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}

func (l *Log) Record(ctx context.Context, e audit.Entry) {
	r := record{at: e.At, who: caller.From(ctx), e: e}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.at.IsZero() {
		r.at = l.now() // with the lock, so that lines and times are in one order
	}
	if l.closed {
		l.dropped.Add(1)
		return
	}
	select {
	case l.queue <- r:
	default:
		l.missed.Add(1)
		l.dropped.Add(1)
	}
}

// Counts returns how many entries were written, dropped since too many were waiting, and
// lost since they could not be written, and how many wait.
func (l *Log) Counts() (written, dropped, failed, queued int64) {
	return l.written.Load(), l.dropped.Load(), l.broke.Load(), int64(len(l.queue))
}

// Close writes what waits, and ends the Log.
func (l *Log) Close() {
	l.mu.Lock()
	was := l.closed
	l.closed = true
	l.mu.Unlock()
	if !was {
		close(l.queue)
	}
	<-l.done
}

// write is the goroutine of the Log.
func (l *Log) write() {
	defer close(l.done)
	for r := range l.queue {
		if missed := l.missed.Swap(0); missed > 0 {
			l.line(r.at, "audit.dropped", []slog.Attr{slog.Int64("entries", missed)})
		}
		l.line(r.at, r.e.Action, attrs(r))
	}
	if missed := l.missed.Swap(0); missed > 0 {
		l.line(l.now(), "audit.dropped", []slog.Attr{slog.Int64("entries", missed)})
	}
}

func (l *Log) line(at time.Time, action string, attrs []slog.Attr) {
	r := slog.NewRecord(at, slog.LevelInfo, action, 0)
	r.AddAttrs(attrs...)
	if err := l.out.Handle(context.Background(), r); err != nil {
		l.broke.Add(1)
		if !l.failing {
			l.failing = true
			l.fail(fmt.Errorf("audit entry %q: %w", action, err))
		}
		return
	}
	l.failing = false
	l.written.Add(1)
}

// attrs are the members of an entry that it has.
func attrs(r record) []slog.Attr {
	who := r.who
	tenant := who.Tenant
	// The host's tenant has the empty name. One without a role, such as a stranger who was refused, is not in it.
	if tenant == caller.HostTenant && (who.Role != caller.Nobody || who.Name == audit.Bridge) {
		tenant = caller.HostName
	}
	list := make([]slog.Attr, 0, 16)
	add := func(key, value string) {
		if value == "" {
			return
		}
		if len(value) > maxText {
			value = value[:maxText] + "…"
		}
		list = append(list, slog.String(key, value))
	}
	add("outcome", r.e.Outcome)
	add("reason", r.e.Reason)
	add("caller", who.Name)
	add("tenant", tenant)
	if who.Role != caller.Nobody {
		add("role", who.Role.String())
	}
	add("peer", who.Peer)
	add("method", r.e.Method)
	add("session_id", r.e.Session)
	if r.e.Owner != who.Tenant {
		add("owner", r.e.Owner)
	}
	add("with", r.e.With)
	add("access", r.e.Access)
	add("callback_id", r.e.Callback)
	add("kind", r.e.Kind)
	add("subject", r.e.Subject)
	add("decision", r.e.Decision)
	add("participant_id", r.e.Participant)
	return list
}
