// Package notify calls functions of programs without waiting for them.
package notify

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
)

// Queue calls a function with one value after another. It is safe for concurrent use.
type Queue[T any] struct {
	call func(T)
	log  *slog.Logger

	mu      sync.Mutex
	values  []T
	running bool
}

// New returns a queue for a function; nil ignores the values. A panic of the function goes to the log.
func New[T any](call func(T), log *slog.Logger) *Queue[T] { return &Queue[T]{call: call, log: log} }

// Add adds a value. A goroutine that ends with the queue calls the function.
func (q *Queue[T]) Add(value T) {
	if q.call == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.values = append(q.values, value)
	if !q.running {
		q.running = true
		go q.drain()
	}
}

func (q *Queue[T]) drain() {
	for {
		q.mu.Lock()
		if len(q.values) == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		next := q.values[0]
		q.values = q.values[1:]
		q.mu.Unlock()
		q.callOnce(next)
	}
}

func (q *Queue[T]) callOnce(value T) {
	defer func() {
		if r := recover(); r != nil {
			q.log.Error("handler panicked", "handler", fmt.Sprintf("%T", q.call), "panic", fmt.Sprint(r),
				"stack", string(debug.Stack()))
		}
	}()
	q.call(value)
}
