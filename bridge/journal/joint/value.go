package joint

import (
	"maps"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// Kind says what a value is. The numbers are in files.
type Kind uint8

// The kinds of values.
const (
	State  Kind = 1
	Outbox Kind = 2
	// gone is the kind of an entry that ends all values of its key: the session was deleted.
	gone Kind = 3
)

// ID identifies a value.
type ID struct {
	Key  string
	Kind Kind
}

// Value is what a session has beside its entries, if only the latest of a kind counts. It is in the joint log, and in
// memory, until the caller has stored it elsewhere, which Moved tells.
type Value struct {
	ID

	// Number is the caller's.
	Number uint64
	// Body is kept.
	Body []byte
	// At orders the values of an ID. Put sets it.
	At uint64
}

// valueEpoch is in place of an epoch, which is never 0, in the entry of a value.
const valueEpoch = 0

// Put appends values. With sync they survive a crash of the machine when Put returns, else that of the process. After an
// error the caller has to store them elsewhere, or put later ones. It is safe for concurrent use.
func (l *Log) Put(values []Value, sync bool) error {
	if err := l.put(values); err != nil {
		return err
	}
	if sync {
		return l.Sync() // of all that was put meanwhile
	}
	return nil
}

func (l *Log) put(values []Value) error {
	defer l.lock()()
	entries, last, err := l.ready()
	if err != nil {
		return err
	}
	b := &l.batch
	defer b.reset()
	for i, v := range values {
		last++
		values[i].At = last
		b.add(v.Key, held{at: last, epoch: valueEpoch, prev: uint64(v.Kind), entry: segment.Entry{Number: v.Number, Body: v.Body}})
	}
	if err := l.append(entries, b, last); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range values {
		l.setValue(v)
	}
	return nil
}

// setValue notes the latest value of an ID. The caller holds mu.
func (l *Log) setValue(v Value) {
	if v.Kind == gone {
		l.dropValue(ID{v.Key, State})
		l.dropValue(ID{v.Key, Outbox})
		l.ended = max(l.ended, v.At)
		return
	}
	l.dropValue(v.ID)
	l.values[v.ID] = v
	l.tails.Add(int64(len(v.Body)))
}

func (l *Log) dropValue(id ID) {
	l.tails.Add(-int64(len(l.values[id].Body)))
	delete(l.values, id)
}

// Value returns the value of an ID, if the joint log has one.
func (l *Log) Value(id ID) (v Value, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, ok = l.values[id]
	return v, ok
}

// Values returns the IDs whose values are in the joint log.
func (l *Log) Values() []ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.values))
}

// Moved says that a value, or a later one, is stored elsewhere.
func (l *Log) Moved(v Value) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.values[v.ID].At <= v.At {
		l.dropValue(v.ID)
	}
}

// End forgets a session that was deleted. Its values do not come back after a crash of the process, and with sync of the
// machine.
func (l *Log) End(key string, sync bool) error {
	l.Forget(key)
	return l.Put([]Value{{ID: ID{key, gone}}}, sync)
}

// dueValues returns the IDs of values that have to be moved now: those up to the cutoff, and others until all have the
// bytes that are over. The caller holds mu.
func (l *Log) dueValues(cutoff uint64, over int64) (ids []ID) {
	for id, v := range l.values {
		if v.At <= cutoff || over > 0 {
			ids = append(ids, id)
			over -= int64(len(v.Body))
		}
	}
	return ids
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
	if h.prev == 0 || h.prev > uint64(gone) {
		return errForm
	}
	l.setValue(Value{ID: ID{key, Kind(h.prev)}, Number: h.entry.Number, Body: h.entry.Body, At: number})
	return nil
}
