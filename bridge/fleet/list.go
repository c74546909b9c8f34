package fleet

import (
	"slices"
	"sync"
)

// maxDown bounds the ended runtimes that stay in a list, so that callers see why they ended.
const maxDown = 4

// list has the running runtimes and the last ended ones. The zero value is empty and ready for use. It is safe
// for concurrent use.
type list struct {
	mu       sync.Mutex
	runtimes []*Runtime
}

// add adds a runtime.
func (l *list) add(r *Runtime) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runtimes = append(l.runtimes, r)
}

// all returns the runtimes in the order in which they started. The slice is the caller's.
func (l *list) all() []*Runtime {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.runtimes)
}

// find returns the first runtime for which is returns true; nil if there is none. is runs with the lock
// held.
func (l *list) find(is func(*Runtime) bool) *Runtime {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.runtimes, is); i >= 0 {
		return l.runtimes[i]
	}
	return nil
}

// ended notes that a runtime has ended. With remove it leaves the list; else it stays until more
// than maxDown runtimes have ended, of which the oldest leaves.
func (l *list) ended(r *Runtime, remove bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if remove {
		l.runtimes = slices.DeleteFunc(l.runtimes, func(o *Runtime) bool { return o == r })
	}
	down := slices.DeleteFunc(slices.Clone(l.runtimes), func(o *Runtime) bool { return o.Err() == nil })
	if len(down) > maxDown {
		l.runtimes = slices.DeleteFunc(l.runtimes, func(o *Runtime) bool { return o == down[0] })
	}
}
