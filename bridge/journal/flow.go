package journal

import (
	"errors"
	"sync"
	"time"
)

// A disk that is slower than a CLI slows the reading of that CLI: whoever reads its events
// waits in AwaitDisk while too many of them wait for the disk. That bounds memory, and gives
// nothing up for as long as the disk moves, however slowly. Durable events are given up only
// where the disk fails, or has not moved for WriterConfig.Patience.

const (
	// DefaultPatience is the default of WriterConfig.Patience.
	DefaultPatience = 30 * time.Second
	// maxHeldBytes is how much of one journal waits for the disk before its reader does.
	maxHeldBytes = 8 << 20
	// maxAllHeldBytes is how much of all journals together does; then the readers wait of those
	// that have at least shareBytes of it.
	maxAllHeldBytes = 64 << 20
	shareBytes      = 512 << 10
	// maxUnsyncedBytes is how much of one journal is in memory until it is synced.
	maxUnsyncedBytes = 64 << 20
	// maxHeldAtAll bounds what waits for a disk that moves, where no reader can be made to wait.
	maxHeldAtAll = 256 << 20
	// flowTick is how often one that waits looks whether the disk still moves.
	flowTick = 50 * time.Millisecond
)

// activity is how a goroutine gets on with its calls of the file system. Its methods may be
// called from any goroutine.
type activity struct {
	mu    sync.Mutex
	since time.Time // when the call under way began, or last got on; zero without one
}

// begin notes that a call begins.
func (a *activity) begin(now time.Time) { a.set(now, true) }

// move notes that the call under way gets on.
func (a *activity) move(now time.Time) { a.set(now, false) }

// end notes that the call is over.
func (a *activity) end() { a.set(time.Time{}, true) }

func (a *activity) set(t time.Time, always bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if always || !a.since.IsZero() {
		a.since = t
	}
}

// still is for how long the call under way has not got on; zero without one.
func (a *activity) still(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		return 0
	}
	return now.Sub(a.since)
}

// stuck reports whether the disk has not moved for longer than it is waited for.
func (w *Writer) stuck() bool {
	now := w.cfg.Now()
	return w.writing.still(now) > w.cfg.Patience || w.syncing.still(now) > w.cfg.Patience
}

// AwaitDisk waits while too many of the journal's events wait for the disk, and reports
// whether it did. It returns when the disk has caught up, fails, or does not move, or when one
// of the channels is closed. It is for the goroutine from which the events come.
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

// behind returns nil unless too much waits for a disk that moves. Then it sees to it that the
// journal is written, and returns a channel that is closed when it is worth asking again.
func (d *Disk) behind() (moved <-chan struct{}) {
	d.j.mu.Lock()
	full, unsynced := d.full(), d.j.cached > maxUnsyncedBytes/2
	if full && d.moved == nil {
		d.moved = make(chan struct{})
	}
	moved = d.moved
	d.j.mu.Unlock()
	if !full || d.writer.stuck() {
		return nil
	}
	d.writer.wake(d)
	if unsynced {
		d.writer.syncSoon()
	}
	return moved
}

// full reports whether more events should wait until the disk has taken some. The journal's
// mu is held.
func (d *Disk) full() bool {
	switch {
	case d.closing || d.failing():
		return false
	case d.held > maxHeldBytes || d.j.cached > maxUnsyncedBytes:
		return true
	}
	return d.held > shareBytes && (d.writer.held.Load() > maxAllHeldBytes || d.j.cfg.Budget.over())
}

// failing reports whether the disk gives errors. The journal's mu is held.
func (d *Disk) failing() bool {
	return d.degraded != nil && !errors.Is(d.degraded, ErrStalled) && !errors.Is(d.degraded, ErrBacklog)
}

// hopeless reports whether the disk will not take what waits for it. The journal's mu is held.
func (d *Disk) hopeless() bool {
	return d.failing() || d.held > maxHeldAtAll || d.writer.stuck()
}

// hold counts bytes that wait for the disk, or no longer do. The journal's mu is held.
func (d *Disk) hold(bytes int) {
	bytes = max(bytes, -d.held)
	d.held += bytes
	d.writer.held.Add(int64(bytes))
	if bytes < 0 {
		d.wakeWaiting()
	}
}

// wakeWaiting wakes who waits in AwaitDisk. The journal's mu is held.
func (d *Disk) wakeWaiting() {
	if d.moved != nil {
		close(d.moved)
		d.moved = nil
	}
}

// over reports whether the journals have more in memory than they should.
func (b *Budget) over() bool { return b != nil && b.used.Load() > b.limit }
