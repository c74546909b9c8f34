package sim

import (
	goruntime "runtime"
	"time"
)

// fuse is the end of a process amid work of the bridge.
type fuse struct {
	left int // points until then; zero without a fuse
	n    int // which end it is
}

// light has a process end at one of the next points.
func (w *world) light(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fuse = fuse{1 + n/2, n}
}

// point is a place in the work of the bridge: it writes to the CLI, or to a disk, or has just read, or told a caller
// something. A process may end there: the bridge itself, or that of the CLI, and then the bridge notices it while it goes
// on. The caller holds no lock of this package.
func (w *world) point(l *life) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owner.fuse.left > 0 && w.lives(l) {
		if w.owner.fuse.left--; w.owner.fuse.left == 0 {
			w.loseLease(w.owner.fuse.n)
		}
	}
	if w.fuse.left == 0 || !w.lives(l) {
		return
	}
	if w.fuse.left--; w.fuse.left > 0 {
		return
	}
	if w.fuse.n%2 == 0 {
		w.end()
		return
	}
	rt := w.kill()
	if rt == nil {
		return
	}
	l.tasks.Go(func() { w.tell(rt, time.Duration(w.fuse.n%3)*5*time.Millisecond) })
	w.mu.Unlock()
	for range w.fuse.n { // others go on first
		goruntime.Gosched()
	}
	w.mu.Lock()
}
