package session

import (
	"context"
	"sync"
)

// resumeLock excludes warm resumes of the bridge and the calls that callers make to the CLI about a
// session from each other; answers to the CLI take no part. CLI 1.0.102 lets a resume wait for the
// calls that are under way, and every later call for the resume: an answer too, without which a call
// that waits for one (session.commands.invoke, session.ui.elicitation) never ends. So a resume waits
// here, where answers pass it. Neither side has preference: each begins when the other has ended.
type resumeLock struct {
	mu       sync.Mutex
	calls    int
	resuming bool
	changed  chan struct{}
}

// beginCall waits until no resume is under way. endCall ends the call.
func (l *resumeLock) beginCall(ctx context.Context) error {
	return l.await(ctx, func() bool {
		if !l.resuming {
			l.calls++
			return true
		}
		return false
	})
}

// endCall ends a call.
func (l *resumeLock) endCall() { l.change(func() { l.calls-- }) }

// beginResume waits until no call and no other resume is under way. endResume ends the resume.
func (l *resumeLock) beginResume(ctx context.Context) error {
	return l.await(ctx, func() bool {
		if l.calls == 0 && !l.resuming {
			l.resuming = true
			return true
		}
		return false
	})
}

// endResume ends a resume.
func (l *resumeLock) endResume() { l.change(func() { l.resuming = false }) }

// await waits until done, which is called with the lock held, returns true.
func (l *resumeLock) await(ctx context.Context, done func() bool) error {
	for {
		l.mu.Lock()
		if done() {
			l.mu.Unlock()
			return nil
		}
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *resumeLock) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}
