package journal

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Backpressure: a disk that is slower than a CLI slows down the reading from that CLI. The goroutine that reads its
// events waits in AwaitDisk while too many of them wait for the disk. This bounds memory without losing events while
// the disk makes progress, however slowly. Durable events are dropped only if the disk fails or makes no progress for
// WriterConfig.Patience.

const (
	// DefaultPatience is the default of WriterConfig.Patience.
	DefaultPatience = 30 * time.Second
	// maxHeldBytes is the limit for one journal above which its reader waits for the disk.
	maxHeldBytes = 8 << 20
	// maxAllHeldBytes is the limit for all journals together. Above it the readers of journals with at least
	// shareBytes wait.
	maxAllHeldBytes = 64 << 20
	shareBytes      = 512 << 10
	// maxUnsyncedBytes bounds the memory of one journal's events that are not synced yet.
	maxUnsyncedBytes = 64 << 20
	// maxHeldAtAll bounds the bytes waiting for a disk that makes progress if no reader can be slowed down.
	maxHeldAtAll = 256 << 20
	// flowTick is the interval at which a waiting reader checks the progress of the disk.
	flowTick = 50 * time.Millisecond
)

// activity tracks the progress of a goroutine's file system calls. It is safe for concurrent use.
type activity struct {
	mu    sync.Mutex
	since time.Time // when the call under way began, or last got on; zero without one
}

// begin records the start of a call.
func (a *activity) begin(now time.Time) { a.set(now, true) }

// move records progress of the current call.
func (a *activity) move(now time.Time) { a.set(now, false) }

// end records the end of the call.
func (a *activity) end() { a.set(time.Time{}, true) }

func (a *activity) set(t time.Time, always bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if always || !a.since.IsZero() {
		a.since = t
	}
}

// busy reports whether there is a call.
func (a *activity) busy() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.since.IsZero()
}

// still returns for how long the current call has made no progress; zero if there is no call.
func (a *activity) still(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		return 0
	}
	return now.Sub(a.since)
}

// stuck reports whether a journal's disk has made no progress for longer than Patience. The journal's mu may be held.
func (w *Writer) stuck(d *Disk) bool {
	w.mu.Lock()
	l := w.lane(d)
	w.mu.Unlock()
	now := w.cfg.Now()
	return l.writing.still(now) > w.cfg.Patience || w.syncing.still(now) > w.cfg.Patience
}

// AwaitDisk waits while too many of the journal's events wait for the disk, and reports whether it waited. It returns
// when the disk has caught up, fails or makes no progress, or when one of the channels is closed. The goroutine that
// appends the events calls it.
func (j *Journal) AwaitDisk(done, exited <-chan struct{}) (waited bool) {
	d := j.disk
	if d == nil {
		return false
	}
	moved := d.behind()
	if moved == nil {
		return false
	}
	tick := time.NewTicker(flowTick)
	defer tick.Stop()
	for ; moved != nil; moved = d.behind() {
		select {
		case <-moved:
		case <-tick.C:
		case <-done:
			return true
		case <-exited:
			return true
		}
	}
	return true
}

// Remote reports whether the log of a journal is across a network, so that another process may continue it.
func (j *Journal) Remote() bool { return j.disk != nil && j.disk.log.Remote() }

// AwaitStorage waits until the remote log of a journal takes events, and returns the reason if it does not within a
// time. It does not wait for a local log, whose events can be shown without it.
func (j *Journal) AwaitStorage(ctx context.Context, limit time.Duration) error {
	if !j.Remote() || j.Degraded() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(flowTick)
	defer tick.Stop()
	for {
		err := j.Degraded()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// behind returns nil unless too many bytes wait for a working disk. Otherwise it schedules a write and returns a
// channel that is closed when the caller should check again.
func (d *Disk) behind() (moved <-chan struct{}) {
	d.j.mu.Lock()
	full, unsynced := d.full(), d.j.cached > maxUnsyncedBytes/2
	if full && d.moved == nil {
		d.moved = make(chan struct{})
	}
	moved = d.moved
	d.j.mu.Unlock()
	if !full || d.writer.stuck(d) {
		return nil
	}
	d.writer.wake(d)
	if unsynced {
		d.writer.syncSoon()
	}
	return moved
}

// full reports whether the reader must wait before it appends more events. The journal's mu is held.
func (d *Disk) full() bool {
	switch {
	case d.closing || d.failing():
		return false
	case d.held > maxHeldBytes || d.j.cached > maxUnsyncedBytes:
		return true
	}
	return d.held > shareBytes && (d.writer.held.Load() > maxAllHeldBytes || d.j.cfg.Budget.over())
}

// failing reports whether the disk returns errors that may last. Those of a remote log do not: it answers again, or the
// process must end. The journal's mu is held.
func (d *Disk) failing() bool {
	err := d.degraded
	return err != nil && !d.log.Remote() && !errors.Is(err, ErrStalled) && !errors.Is(err, ErrBacklog)
}

// hopeless reports whether the disk will not accept the waiting bytes. The journal's mu is held.
func (d *Disk) hopeless() bool {
	return d.failing() || d.held > maxHeldAtAll || d.writer.stuck(d)
}

// hold changes the count of bytes waiting for the disk. The journal's mu is held.
func (d *Disk) hold(bytes int) {
	bytes = max(bytes, -d.held)
	d.held += bytes
	d.writer.held.Add(int64(bytes))
	if bytes < 0 {
		d.wakeWaiting()
	}
}

// wakeWaiting wakes the goroutines in AwaitDisk. The journal's mu is held.
func (d *Disk) wakeWaiting() {
	if d.moved != nil {
		close(d.moved)
		d.moved = nil
	}
}

// over reports whether the journals use more memory than the limit.
func (b *Budget) over() bool { return b.used.Load() > b.limit }
