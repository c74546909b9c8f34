package journal

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// A journal of an earlier life that finds no room for its first reservation must not give
// numbers that the next life, which knows nothing of them, would give again. One cell of
// the data directory counts how often that was about to happen: it can be written when the
// disk is full. Every mark tells what the count was when it was made. A journal whose mark
// tells less than the cell begins as many blocks further on: whatever was given without a
// reservation since is before that.

const (
	// overrunBlock is how far a journal goes on for each time by which its mark is behind.
	// It is more than what a life can give without a mark, and what recovery passes over.
	overrunBlock = 1 << 28
	// maxOverrun is how many numbers a life gives at most without a mark that says so.
	maxOverrun = overrunBlock / 2
)

// openOverruns opens the cell; nil without one.
func openOverruns(cfg *WriterConfig) *segment.Cell {
	if cfg.OverrunFile == "" {
		return nil
	}
	// Of a cell that says nothing: the count moves rarely, and the clock is past it.
	now := func([]byte) uint64 { return uint64(max(cfg.Now().Unix(), 0)) }
	cell, err := segment.OpenCell(cfg.FS, cfg.OverrunFile, cfg.Fsync != FsyncNever, now)
	if err != nil {
		cfg.Logger.Warn("no room kept for going on with a full disk", "file", cfg.OverrunFile, "error", err)
	}
	return cell
}

// overrun lets the journal give numbers although none could be reserved, if it wants some
// and the count says so to the next life.
func (d *Disk) overrun() {
	d.j.mu.Lock()
	given := d.j.nextSeq - 1
	wanted := !d.unbacked && given+reserveBlock/2 > d.reserved && given+reserveBlock < d.start+maxOverrun
	marked, life := d.marked, d.life
	d.j.mu.Unlock()
	if !wanted || d.writer.overruns == nil {
		return
	}
	if err := d.writer.overruns.Raise(marked + 1); err != nil {
		d.writer.cfg.Logger.Error("nothing new is shown of a journal until its disk takes something", "directory", d.dir, "error", err)
		return
	}
	d.j.mu.Lock()
	defer d.j.mu.Unlock()
	if d.life == life {
		d.reserved, d.marks = max(d.reserved, given+reserveBlock), true
	}
}

// overrunsNow is the count.
func (w *Writer) overrunsNow() uint64 {
	if w.overruns == nil {
		return 0
	}
	return w.overruns.Get()
}
