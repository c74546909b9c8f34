package joint

import (
	"maps"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// Value is what a session has beside its entries, if only the latest counts: its state. It is in the joint log, and in
// memory, until the caller has stored it elsewhere, which Settled tells.
type Value struct {
	Key string
	// Number is greater than those of all values before it, also of earlier processes.
	Number uint64
	// Body is kept.
	Body []byte
}

// heldValue is the latest value of a key in the joint log.
type heldValue struct {
	at     uint64 // its number in the joint log
	number uint64
	body   []byte
}

const (
	// valueEpoch is in place of an epoch, which is never 0, in the entry of a value.
	valueEpoch = 0
	// stateValue says what the value is: the state of a session.
	stateValue = 1
)

// Put appends values. With sync they survive a crash of the machine when Put returns, else that of the process. After an
// error the caller has to store them elsewhere. It is safe for concurrent use.
func (l *Log) Put(values []Value, sync bool) error {
	defer l.lock()()
	entries, last, err := l.ready()
	if err != nil {
		return err
	}
	joined := make([]segment.Entry, len(values))
	for i, v := range values {
		last++
		head := appendHead(nil, v.Key, &held{epoch: valueEpoch, prev: stateValue, entry: segment.Entry{Number: v.Number}})
		joined[i] = segment.Entry{Number: last, Head: head, Body: v.Body}
	}
	if err := l.append(entries, joined, last); err != nil {
		return err
	}
	if sync {
		if err := l.Sync(); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsynced = l.unsynced || !sync && l.o.SyncFiles
	for i, v := range values {
		l.setValue(v.Key, heldValue{joined[i].Number, v.Number, v.Body})
	}
	return nil
}

// setValue notes the latest value of a key; none without a body. The caller holds mu.
func (l *Log) setValue(key string, v heldValue) {
	l.tails.Add(int64(len(v.body) - len(l.values[key].body)))
	if v.body == nil {
		delete(l.values, key)
	} else {
		l.values[key] = v
	}
}

// Value returns the value of a key, if the joint log has one.
func (l *Log) Value(key string) (v Value, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.values[key]
	return Value{key, h.number, h.body}, ok
}

// Values returns the keys whose values are in the joint log.
func (l *Log) Values() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.values))
}

// Settled says that the value of a key with a number, or a later one, is stored elsewhere.
func (l *Log) Settled(key string, number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h, ok := l.values[key]; ok && h.number <= number {
		l.setValue(key, heldValue{})
	}
}

// dueValues returns the keys of values that have to be settled now: those up to the cutoff, and others until all have the
// bytes that are over. The caller holds mu.
func (l *Log) dueValues(cutoff uint64, over int64) (keys []string) {
	for key, v := range l.values {
		if v.at <= cutoff || over > 0 {
			keys = append(keys, key)
			over -= int64(len(v.body))
		}
	}
	return keys
}

// SyncValues makes values survive a crash of the machine that were put without a sync.
func (l *Log) SyncValues() error {
	l.mu.Lock()
	unsynced := l.unsynced && l.failed == nil
	l.unsynced = false
	l.mu.Unlock()
	if !unsynced {
		return nil
	}
	return l.Sync()
}

// recover notes an entry of an earlier process.
func (l *Log) recover(number uint64, body []byte) error {
	key, h, err := parse(body)
	if err != nil {
		return err
	}
	if h.at = number; h.epoch != valueEpoch {
		l.inherited[key] = append(l.inherited[key], h)
		return nil
	}
	if h.prev != stateValue {
		return errForm
	}
	l.setValue(key, heldValue{number, h.entry.Number, h.entry.Body})
	return nil
}
