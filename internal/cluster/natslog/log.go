package natslog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/jsapi"
)

// log is a session's log of one owner. It implements backend.Log.
type log struct {
	logs    *Logs
	subject string
	term    uint64
	writer  writer

	// The rest is for the methods that change the log, which are called one at a time.

	at uint64 // number of the subject's last message, as far as the writer knows
	op uint64 // number of the last operation
	// unsure reports that the last publication had no known end: its message may be stored.
	unsure bool
	over   bool // the log was deleted, or another owner has it

	mu       sync.Mutex
	contents contents
}

// errLate reports a change that was not made because an earlier one, which had failed, was stored after all. The caller
// looks at the log again.
var errLate = errors.New("an earlier change that had failed is stored after all")

var _ backend.Log = (*log)(nil)

// Epoch implements backend.Log.
func (l *log) Epoch() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.contents.epoch
}

// Last implements backend.Log.
func (l *log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.contents.last
}

// Trimmed implements backend.Log.
func (l *log) Trimmed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.contents.trimmed
}

// Size implements backend.Log.
func (l *log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.contents.bytes()
}

// Append implements backend.Log.
func (l *log) Append(last uint64, entries []backend.Entry) error {
	return l.change(func() (*part, error) {
		if l.Last() != last {
			return nil, backend.ErrStale
		}
		if len(entries) == 0 {
			return nil, nil
		}
		return &part{kind: kindAppend, epoch: l.Epoch(), body: appendEntries(nil, entries)}, nil
	})
}

// Replace implements backend.Log.
func (l *log) Replace(epoch uint64, entries []backend.Entry) error {
	err := l.change(func() (*part, error) {
		if now := l.Epoch(); epoch <= now {
			return nil, fmt.Errorf("epoch %d is not later than %d", epoch, now)
		}
		return &part{kind: kindReplace, epoch: epoch, body: appendEntries(nil, entries)}, nil
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	keep, _, ok := l.contents.messages(0)
	l.mu.Unlock()
	if ok {
		l.purge(keep)
	}
	return nil
}

// Trim implements backend.Log.
func (l *log) Trim(maxBytes int64, before time.Time) (uint64, error) {
	var keep uint64
	err := l.change(func() (*part, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		c := &l.contents
		trimmed, first, ok := c.trim(maxBytes, before)
		if !ok {
			return nil, nil
		}
		keep = first
		return &part{kind: kindTrim, epoch: c.epoch, body: appendTrim(nil, trimmed, c.mark)}, nil
	})
	if err == nil && keep > 0 {
		l.purge(keep)
	}
	return l.Trimmed(), err
}

// Delete implements backend.Log.
func (l *log) Delete() error {
	if err := l.change(func() (*part, error) { return &part{kind: kindDelete}, nil }); err != nil {
		return err
	}
	l.over = true
	return l.logs.stream.Purge(context.Background(), l.subject, l.at+1)
}

// Sync implements backend.Log. What was acknowledged is safe already.
func (l *log) Sync() (uint64, error) { return l.Last(), nil }

// Rest implements backend.Log.
func (*log) Rest() error { return nil }

// Remote implements backend.Log.
func (*log) Remote() bool { return true }

// change stores the operation that prepare returns; nil changes nothing, but an owner whose term is over still learns
// it.
func (l *log) change(prepare func() (*part, error)) (err error) {
	defer func() {
		if errors.Is(err, backend.ErrStale) {
			l.logs.cfg.Lost(err)
		}
	}()
	if l.over {
		return backend.ErrStale
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.logs.cfg.ReadTimeout)
	defer cancel()
	if err := l.settle(ctx); err != nil {
		return l.failed(err)
	}
	p, err := prepare()
	if err != nil {
		return err
	}
	if p == nil {
		return l.failed(l.check(ctx))
	}
	return l.failed(l.store(ctx, p))
}

// failed notes that the term is over.
func (l *log) failed(err error) error {
	l.over = l.over || errors.Is(err, backend.ErrStale)
	return err
}

// check returns ErrStale if another owner has the log.
func (l *log) check(ctx context.Context) error {
	last, err := l.logs.lastPart(ctx, l.subject)
	if err != nil {
		return err
	}
	if last.seq > l.at {
		return backend.ErrStale
	}
	return nil
}

// store publishes an operation in parts and applies it.
func (l *log) store(ctx context.Context, whole *part) error {
	l.op++
	whole.term, whole.writer, whole.op = l.term, l.writer, l.op
	op := &operation{part: *whole, size: int64(len(whole.body))}
	for rest := whole.body; ; {
		p := *whole
		p.body = rest[:min(len(rest), l.logs.chunk)]
		rest = rest[len(p.body):]
		p.last = len(rest) == 0
		if err := l.publish(ctx, &p); err != nil {
			return err
		}
		if p.index == 0 {
			op.first = l.at
		}
		if p.last {
			op.last = l.at
			return l.apply(op)
		}
		whole.index++
	}
}

// apply applies an operation that is stored.
func (l *log) apply(op *operation) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.contents.apply(op, time.Now())
}

// publish stores a part behind the last message.
func (l *log) publish(ctx context.Context, p *part) error {
	message := p.append(make([]byte, 0, maxHead+len(p.body)))
	seq, err := l.logs.stream.Publish(ctx, l.subject, l.at, message)
	switch {
	case err == nil:
		l.at = seq
		return nil
	case errors.Is(err, backend.ErrStale):
		return l.refused(ctx, p)
	}
	l.unsure = true
	return err
}

// refused looks at the message for which the server refused a part: the part itself, which the connection sent twice,
// an earlier one of this writer that came late, or another owner's.
func (l *log) refused(ctx context.Context, p *part) error {
	last, err := l.logs.lastPart(ctx, l.subject)
	if err != nil {
		l.unsure = true
		return err
	}
	if last.part != nil && last.part.same(p) {
		l.at = last.seq
		return nil
	}
	return l.adopt(ctx, last)
}

// settle finds out whether the message that is unsure was stored.
func (l *log) settle(ctx context.Context) error {
	if !l.unsure {
		return nil
	}
	last, err := l.logs.lastPart(ctx, l.subject)
	if err == nil && last.seq != l.at {
		if err = l.adopt(ctx, last); errors.Is(err, errLate) && !last.part.last {
			err = nil // it is a part of an unfinished change
		}
	}
	l.unsure = err != nil && !errors.Is(err, errLate)
	return err
}

// adopt reads the log again, whose last message is one of this writer that it did not know to be stored. It returns
// errLate, or ErrStale if the message is another owner's.
func (l *log) adopt(ctx context.Context, last lastPart) error {
	if last.part == nil || last.part.writer != l.writer {
		return backend.ErrStale
	}
	l.at = last.seq
	if err := l.recover(ctx, l.Epoch()); err != nil {
		l.unsure = true
		return err
	}
	return errLate
}

// purge removes the messages before one that readers no longer need. If it fails, the next one removes them.
func (l *log) purge(keep uint64) {
	_ = l.logs.stream.Purge(context.Background(), l.subject, keep)
}

// Read implements backend.Log.
func (l *log) Read(after uint64, f func(number uint64, body []byte) bool) error {
	l.mu.Lock()
	epoch, last := l.contents.epoch, l.contents.last
	after = max(after, l.contents.trimmed)
	first, end, ok := l.contents.messages(after)
	l.mu.Unlock()
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.logs.cfg.ReadTimeout)
	defer cancel()
	r := reading{epoch: epoch, after: after, f: f}
	err := l.logs.stream.Scan(ctx, l.subject, first, end, r.take)
	if err = errors.Join(err, r.err); err != nil || r.stopped || r.after >= last {
		return err
	}
	if l.Epoch() != epoch || l.Trimmed() > r.after {
		return nil // the caller sees what happened meanwhile
	}
	return &segment.DamageError{Hole: segment.Hole{After: r.after, Through: last}}
}

// reading gives the entries of messages to a function.
type reading struct {
	epoch   uint64
	after   uint64
	f       func(number uint64, body []byte) bool
	parts   assembler
	stopped bool
	err     error
}

// take takes the next message. It returns false at the end.
func (r *reading) take(m jsapi.Message) bool {
	p, err := parsePart(m.Data)
	if err != nil {
		r.err = fmt.Errorf("message %d: %w", m.Seq, err)
		return false
	}
	op := r.parts.add(m.Seq, p)
	if op == nil || op.kind != kindAppend && op.kind != kindReplace || op.epoch != r.epoch {
		return true
	}
	r.err = eachEntry(op.body, func(number uint64, data []byte) bool {
		if number <= r.after {
			return true
		}
		r.after = number
		r.stopped = !r.f(number, data)
		return !r.stopped
	})
	return r.err == nil && !r.stopped
}
