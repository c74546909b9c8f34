package backendtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// The fakes keep everything in memory, in the way that a server with compare-and-set would. Each
// has faults, which are named as the tests name them.

// fakeLogs keeps the state of each log on one side and its handles on the other.
type fakeLogs struct {
	fault string
	mu    sync.Mutex
	logs  map[string]*fakeLog
}

type fakeLog struct {
	term, epoch, last, trimmed uint64
	mark                       []byte
	numbers                    []uint64
	bodies                     [][]byte
}

func (f *fakeLog) size() (n int64) {
	for _, b := range f.bodies {
		n += int64(len(b))
	}
	return n
}

func newFakeLogs(fault string) *fakeLogs { return &fakeLogs{fault: fault, logs: map[string]*fakeLog{}} }

func (l *fakeLogs) Open(
	session string, term, epoch uint64, visit func(uint64, []byte) error,
) (backend.Log, backend.Recovered, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.logs[session]
	if f == nil {
		f = &fakeLog{epoch: epoch}
		l.logs[session] = f
	}
	if f.term > term && l.fault != "opened for an earlier term" {
		return nil, backend.Recovered{}, backend.ErrStale
	}
	f.term = term
	for i, n := range f.numbers {
		_ = visit(n, f.bodies[i])
	}
	return &fakeHandle{l, session, f, term}, backend.Recovered{Mark: f.mark}, nil
}

type fakeHandle struct {
	*fakeLogs
	session string
	log     *fakeLog
	term    uint64
}

// read runs f with the log.
func (h *fakeHandle) read(f func(*fakeLog)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h.log)
}

func (h *fakeHandle) change(f func(*fakeLog) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.log.term != h.term && h.fault != "stale append accepted" {
		return backend.ErrStale
	}
	return f(h.log)
}

func (h *fakeHandle) Epoch() (n uint64)   { h.read(func(f *fakeLog) { n = f.epoch }); return n }
func (h *fakeHandle) Last() (n uint64)    { h.read(func(f *fakeLog) { n = f.last }); return n }
func (h *fakeHandle) Trimmed() (n uint64) { h.read(func(f *fakeLog) { n = f.trimmed }); return n }
func (h *fakeHandle) Size() (n int64)     { h.read(func(f *fakeLog) { n = f.size() }); return n }
func (h *fakeHandle) Rest() error         { return nil }
func (h *fakeHandle) Remote() bool        { return false }

func (h *fakeHandle) Sync() (uint64, error) { return h.Last(), nil }

func (h *fakeHandle) Append(last uint64, list []backend.Entry) error {
	return h.change(func(f *fakeLog) error {
		if f.last != last && h.fault != "unknown last entry accepted" {
			return backend.ErrStale
		}
		f.append(list)
		return nil
	})
}

func (f *fakeLog) append(list []backend.Entry) {
	for _, e := range list {
		if e.Mark {
			f.mark = bytes.Clone(e.Body)
			continue
		}
		f.last = e.Number
		f.numbers = append(f.numbers, e.Number)
		f.bodies = append(f.bodies, slices.Concat(e.Head, e.Body))
	}
}

func (h *fakeHandle) Replace(epoch uint64, list []backend.Entry) error {
	return h.change(func(f *fakeLog) error {
		if epoch <= f.epoch {
			return errors.New("not a later epoch")
		}
		if h.fault == "old entries stay" {
			f.epoch = epoch
			f.append(list)
			return nil
		}
		*f = fakeLog{term: f.term, epoch: epoch}
		f.append(list)
		return nil
	})
}

func (h *fakeHandle) Read(after uint64, f func(uint64, []byte) bool) error {
	h.mu.Lock()
	numbers, bodies := slices.Clone(h.log.numbers), slices.Clone(h.log.bodies)
	h.mu.Unlock()
	for i, n := range numbers {
		if (n > after || h.fault == "position ignored") && !f(n, bodies[i]) {
			return nil
		}
	}
	return nil
}

func (h *fakeHandle) Trim(maxBytes int64, _ time.Time) (trimmed uint64, err error) {
	err = h.change(func(f *fakeLog) error {
		for f.size() > maxBytes && len(f.numbers) > 1 && h.fault != "never trimmed" {
			f.trimmed = f.numbers[0]
			f.numbers, f.bodies = f.numbers[1:], f.bodies[1:]
		}
		return nil
	})
	return h.Trimmed(), err
}

func (h *fakeHandle) Delete() error {
	return h.change(func(f *fakeLog) error {
		if h.fault != "never deleted" {
			f.term = ^uint64(0)
			delete(h.logs, h.session)
		}
		return nil
	})
}

// fakeRequests is the last record of each key.
type fakeRequests struct {
	fault string
	kept  map[backend.Key]backend.Request
}

func openFakeRequests(fault string) OpenRequests {
	r := &fakeRequests{fault, map[backend.Key]backend.Request{}}
	return func() (backend.Requests, []backend.Request, error) { return r, r.list(), nil }
}

func (r *fakeRequests) list() (out []backend.Request) {
	for _, q := range r.kept {
		if (q.Expires.After(time.Now()) || r.fault == "expired request remembered") &&
			!(r.fault == "begun request forgotten" && q.Type == "") {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, func(a, b backend.Request) int {
		return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(a.Key.ID, b.Key.ID))
	})
	return out
}

func (r *fakeRequests) Add(q backend.Request) error {
	if r.fault == "tenants mixed" {
		q.Key.Tenant = "t"
	}
	if q.Over && r.fault != "failed request remembered" {
		delete(r.kept, q.Key)
		return nil
	}
	r.kept[q.Key] = q
	return nil
}

func (r *fakeRequests) Answer(key backend.Key) (string, []byte, error) {
	q, ok := r.kept[key]
	if !ok {
		return "", nil, errors.New("no such request")
	}
	if r.fault == "large answer cut" && len(q.Answer) > backend.MaxInline {
		q.Answer = q.Answer[:backend.MaxInline]
	}
	return q.Type, q.Answer, nil
}

func (r *fakeRequests) Forget(key backend.Key, expires time.Time) {
	if q := r.kept[key]; !q.Expires.After(expires) || r.fault == "newer record forgotten" {
		delete(r.kept, key)
	}
}

func (r *fakeRequests) Compact(context.Context) error { return nil }

func (r *fakeRequests) Close() error {
	if r.fault == "request forgotten" {
		clear(r.kept)
	}
	return nil
}
