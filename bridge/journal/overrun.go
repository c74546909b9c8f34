package journal

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// A journal of an earlier process may find no disk space for its first reservation. It must not issue numbers that
// the next process, which knows nothing of them, would issue again. One cell of the data directory counts such cases;
// it can be written even if the disk is full. Each mark records the count at its time. A journal whose mark has a
// lower count than the cell skips as many blocks: all numbers issued without a reservation lie within them.

const (
	// overrunBlock is the count of numbers that a journal skips for each difference between cell and mark. It
	// exceeds the sum of the numbers that a process can issue without a mark and the numbers that recovery
	// skips.
	overrunBlock = 1 << 28
	// maxOverrun bounds the numbers that a process issues without a mark.
	maxOverrun = overrunBlock / 2
)

// openOverruns opens the cell; it returns nil if there is none.
func openOverruns(cfg *WriterConfig) *segment.Cell {
	if cfg.OverrunFile == "" {
		return nil
	}
	// For a cell without a readable value: the count changes rarely, and the clock exceeds it.
	now := func([]byte) uint64 { return uint64(max(cfg.Now().Unix(), 0)) }
	cell, err := segment.OpenCell(cfg.FS, cfg.OverrunFile, cfg.Fsync != FsyncNever, now)
	if err != nil {
		cfg.Logger.Warn("reserving disk space for a full disk failed", "file", cfg.OverrunFile, "error", err)
	}
	return cell
}

// overrun permits the journal to issue numbers without a reservation, after the count on disk was raised for the next
// process.
func (d *Disk) overrun() {
	d.j.mu.Lock()
	given := d.j.nextSeq - 1
	wanted := !d.unbacked && given+reserveBlock/2 > d.reserved && given+reserveBlock < d.start+maxOverrun
	marked, epoch := d.marked, d.j.cfg.Epoch
	d.j.mu.Unlock()
	if !wanted || d.writer.overruns == nil {
		return
	}
	if err := d.writer.overruns.Raise(marked + 1); err != nil {
		d.writer.cfg.Logger.Error("journal delivers no new events until its disk accepts a write", "directory", d.dir,
			"error", err)
		return
	}
	d.j.mu.Lock()
	defer d.j.mu.Unlock()
	if d.j.cfg.Epoch == epoch {
		d.reserved, d.marks = max(d.reserved, given+reserveBlock), true
	}
}
