package shim

import (
	"context"
	"sync"
	"time"
)

// defaultLinger is how long a connection stays open after the answer to runtime.shutdown, for
// requests that a program makes just then. The CLI takes them for some 10 ms and ends after 20.
const defaultLinger = 100 * time.Millisecond

// ending is the end that a program asks for by runtime.shutdown. It is safe for concurrent use.
type ending struct {
	once     sync.Once
	begun    chan struct{} // closed when the first program has asked for it
	answered chan struct{} // closed when an answer has its place among what is written
	reply    sync.Once
}

func newEnding() *ending {
	return &ending{begun: make(chan struct{}), answered: make(chan struct{})}
}

// begin runs cleanup for the first caller. All callers return when it is done.
func (e *ending) begin(cleanup func()) {
	e.once.Do(func() {
		close(e.begun)
		cleanup()
	})
}

// stopping reports whether a program has asked for the end.
func (e *ending) stopping() bool {
	select {
	case <-e.begun:
		return true
	default:
		return false
	}
}

// replied notes that an answer is on its way.
func (e *ending) replied() { e.reply.Do(func() { close(e.answered) }) }

// awaitLinger waits until a connection has been open long enough after the answer, or over or
// ctx ends.
func awaitLinger(ctx context.Context, linger time.Duration, over <-chan struct{}) {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-over:
	case <-ctx.Done():
	}
}
