// Package fleet keeps the CLI processes that the bridge uses.
//
// The mutex of a List guards the list alone; a runtime may lock its own fields while a caller of
// the list holds it, never the other way round. The package starts no goroutine.
package fleet

import (
	"slices"
	"sync"
)

// maxDown bounds the ended runtimes that stay in a list, so that callers see why they ended.
const maxDown = 4

// Runtime is a CLI process in use.
type Runtime interface {
	comparable
	// Err returns why the runtime ended, nil while it runs.
	Err() error
}

// List has the runtimes that run and those that ended last. The zero value is empty and ready for
// use. It is safe for concurrent use.
type List[R Runtime] struct {
	mu  sync.Mutex
	all []R
}

// Add adds a runtime.
func (l *List[R]) Add(r R) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r)
}

// All returns the runtimes in the order in which they started. The slice is the caller's.
func (l *List[R]) All() []R {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// Find returns the first runtime for which is returns true; ok is false if there is none. is runs
// with the lock held.
func (l *List[R]) Find(is func(R) bool) (r R, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.all, is); i >= 0 {
		return l.all[i], true
	}
	return r, false
}

// Ended notes that a runtime has ended. With remove it leaves the list; else it stays until more
// than maxDown runtimes have ended, of which the oldest leaves.
func (l *List[R]) Ended(r R, remove bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if remove {
		l.all = slices.DeleteFunc(l.all, func(o R) bool { return o == r })
	}
	down := slices.DeleteFunc(slices.Clone(l.all), func(o R) bool { return o.Err() == nil })
	if len(down) > maxDown {
		l.all = slices.DeleteFunc(l.all, func(o R) bool { return o == down[0] })
	}
}
