package sim

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// sharedLogs keep the logs of sessions as the storage of a cluster does: in memory, with terms, and across a network.
type sharedLogs struct {
	volume
	logs map[string]*sharedLog
}

// sharedLog is what is stored of a log.
type sharedLog struct {
	term, epoch, last, trimmed uint64
	mark                       []byte
	appended                   bool
	entries                    []sharedEntry
}

type sharedEntry struct {
	number uint64
	body   []byte
}

func newSharedLogs(point, refused func()) *sharedLogs {
	return &sharedLogs{volume: volume{point: point, refused: refused, patience: callTimeout}, logs: map[string]*sharedLog{}}
}

// clone returns what is stored now.
func (l *sharedLogs) clone(point, refused func()) *sharedLogs {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := newSharedLogs(point, refused)
	for session, log := range l.logs {
		of := *log
		of.entries = slices.Clone(log.entries)
		next.logs[session] = &of
	}
	return next
}

// fence ends the term of the owner of each log.
func (l *sharedLogs) fence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, log := range l.logs {
		log.term++
	}
}

// Open implements backend.Logs.
func (l *sharedLogs) Open(session string, term, epoch uint64, visit func(uint64, []byte) error) (
	backend.Log, backend.Recovered, error,
) {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.logs[session]
	if log == nil {
		log = &sharedLog{}
		l.logs[session] = log
	}
	if log.term > term {
		return nil, backend.Recovered{}, backend.ErrStale
	}
	if log.term = term; !log.appended {
		log.epoch = epoch
	}
	for _, e := range log.entries {
		_ = visit(e.number, e.body) // an entry that the caller cannot use is skipped
	}
	return &ownedLog{logs: l, session: session, log: log, term: term, last: log.last, epoch: log.epoch}, backend.Recovered{Mark: log.mark}, nil
}

// ownedLog is the log of an owner. It implements backend.Log.
type ownedLog struct {
	logs    *sharedLogs
	session string
	log     *sharedLog
	term    uint64
	// last and epoch are what the owner knows of the log. unsure: it does not know whether its last change was made.
	last, epoch uint64
	unsure      bool
}

// errLate reports a change that was not made, because an earlier one was made whose answer was lost.
var errLate = errors.New("an earlier change is stored after all")

// change makes a change if the owner's term is not over.
func (o *ownedLog) change(make func(*sharedLog) error) error {
	return o.logs.change(func() error {
		if o.log.term != o.term {
			return backend.ErrStale
		}
		if o.unsure {
			before := ownedLog{last: o.last, epoch: o.epoch}
			if o.settle(); o.last != before.last || o.epoch != before.epoch {
				return errLate
			}
		}
		if err := make(o.log); err != nil {
			return err
		}
		if o.unsure = o.logs.late; !o.unsure {
			o.settle()
		}
		return nil
	})
}

// settle has the owner know what is stored.
func (o *ownedLog) settle() { o.last, o.epoch, o.unsure = o.log.last, o.log.epoch, false }

// Append implements backend.Log.
func (o *ownedLog) Append(last uint64, entries []backend.Entry) error {
	return o.change(func(log *sharedLog) error {
		if log.last != last {
			return backend.ErrStale
		}
		log.append(entries)
		return nil
	})
}

func (s *sharedLog) append(entries []backend.Entry) {
	s.appended = s.appended || len(entries) > 0
	for _, e := range entries {
		if e.Mark {
			s.mark = bytes.Clone(e.Body)
			continue
		}
		s.last = e.Number
		s.entries = append(s.entries, sharedEntry{e.Number, slices.Concat(e.Head, e.Body)})
	}
}

// Replace implements backend.Log.
func (o *ownedLog) Replace(epoch uint64, entries []backend.Entry) error {
	return o.change(func(log *sharedLog) error {
		if epoch <= log.epoch {
			return errors.New("not a later epoch")
		}
		*log = sharedLog{term: log.term, epoch: epoch}
		log.append(entries)
		return nil
	})
}

// Trim implements backend.Log.
func (o *ownedLog) Trim(maxBytes int64, _ time.Time) (uint64, error) {
	err := o.change(func(log *sharedLog) error {
		for maxBytes > 0 && log.size() > maxBytes && len(log.entries) > 1 {
			log.trimmed, log.entries = log.entries[0].number, log.entries[1:]
		}
		return nil
	})
	return o.Trimmed(), err
}

// Delete implements backend.Log.
func (o *ownedLog) Delete() error {
	return o.change(func(log *sharedLog) error {
		log.term++
		delete(o.logs.logs, o.session)
		return nil
	})
}

// Read implements backend.Log.
func (o *ownedLog) Read(after uint64, f func(uint64, []byte) bool) error {
	o.logs.mu.Lock()
	entries := slices.Clone(o.log.entries)
	o.logs.mu.Unlock()
	for _, e := range entries {
		if e.number > after && !f(e.number, e.body) {
			return nil
		}
	}
	return nil
}

func (s *sharedLog) size() (n int64) {
	for _, e := range s.entries {
		n += int64(len(e.body))
	}
	if s.appended {
		n++
	}
	return n
}

// get reads the log.
func get[T any](o *ownedLog, f func(*sharedLog) T) T {
	o.logs.mu.Lock()
	defer o.logs.mu.Unlock()
	return f(o.log)
}

// Last implements backend.Log.
func (o *ownedLog) Last() uint64 { return get(o, func(*sharedLog) uint64 { return o.last }) }

// Epoch implements backend.Log.
func (o *ownedLog) Epoch() uint64 { return get(o, func(*sharedLog) uint64 { return o.epoch }) }

// Trimmed implements backend.Log.
func (o *ownedLog) Trimmed() uint64 {
	return get(o, func(log *sharedLog) uint64 { return log.trimmed })
}

// Size implements backend.Log.
func (o *ownedLog) Size() int64 { return get(o, (*sharedLog).size) }

// Sync implements backend.Log.
func (o *ownedLog) Sync() (uint64, error) { return o.Last(), nil }

// Rest implements backend.Log.
func (*ownedLog) Rest() error { return nil }

// Remote implements backend.Log.
func (*ownedLog) Remote() bool { return true }
