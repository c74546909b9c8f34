package fleet

import (
	"slices"
	"sync"
)

// maxDown bounds the ended runtimes that stay in a list, so that callers see why they ended.
const maxDown = 4

// list has the running runtimes and the last ended ones. The zero value is empty and ready for use. It is safe
// for concurrent use.
type list[R interface {
	comparable
	// Err returns why the runtime ended, nil while it runs.
	Err() error
}] struct {
	mu       sync.Mutex
	runtimes []R
}

// add adds a runtime.
func (l *list[R]) add(r R) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runtimes = append(l.runtimes, r)
}

// all returns the runtimes in the order in which they started. The slice is the caller's.
func (l *list[R]) all() []R {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.runtimes)
}

// find returns the first runtime for which is returns true; ok is false if there is none. is runs
// with the lock held.
func (l *list[R]) find(is func(R) bool) (r R, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.runtimes, is); i >= 0 {
		return l.runtimes[i], true
	}
	return r, false
}

// ended notes that a runtime has ended. With remove it leaves the list; else it stays until more
// than maxDown runtimes have ended, of which the oldest leaves.
func (l *list[R]) ended(r R, remove bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if remove {
		l.runtimes = slices.DeleteFunc(l.runtimes, func(o R) bool { return o == r })
	}
	down := slices.DeleteFunc(slices.Clone(l.runtimes), func(o R) bool { return o.Err() == nil })
	if len(down) > maxDown {
		l.runtimes = slices.DeleteFunc(l.runtimes, func(o R) bool { return o == down[0] })
	}
}
