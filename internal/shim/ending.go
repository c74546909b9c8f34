package shim

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// defaultLinger is how long a connection stays open after the answer to runtime.shutdown, for
// requests that a program makes just then. The CLI takes them for some 10 ms and ends after 20.
const defaultLinger = 100 * time.Millisecond

// ending is the end that a program asks for by runtime.shutdown. It is safe for concurrent use.
type ending struct {
	once     sync.Once
	begun    atomic.Bool
	answered context.Context // ends when an answer has its place among what is written
	replied  context.CancelFunc
}

func newEnding() *ending {
	e := &ending{}
	e.answered, e.replied = context.WithCancel(context.Background())
	return e
}

// begin runs cleanup for the first caller. All callers return when it is done.
func (e *ending) begin(cleanup func()) {
	e.once.Do(func() {
		e.begun.Store(true)
		cleanup()
	})
}

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
