package journal

import (
	"errors"
	"io/fs"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// Events of any journal that was not closed can be among those that a damaged joint log has lost. The damage is gone
// with the joint log's files, and a journal may be opened later than that. A cell beside them therefore counts how often
// the joint log was found damaged, and each mark of a journal has the count at its time. A journal that was not closed
// and whose mark has a lower count than the cell may lack events.

// openDoubts opens the cell for a joint log's directory. There is none before the first damage.
func (w *Writer) openDoubts(dir string, damaged bool) {
	name := dir + ".doubts"
	if _, err := w.cfg.FS.Size(name); errors.Is(err, fs.ErrNotExist) && !damaged {
		return
	}
	// For a cell without a readable value: the clock exceeds the count.
	now := func(text []byte) uint64 {
		if len(text) == 0 {
			return 0
		}
		return uint64(max(w.cfg.Now().Unix(), 0))
	}
	cell, err := segment.OpenCell(w.cfg.FS, name, w.cfg.Fsync != FsyncNever, now)
	w.doubts.Store(cell)
	if damaged {
		w.cfg.Logger.Warn("events of journals that had not been closed may be lost", "directory", dir)
		if err == nil {
			err = cell.Raise(cell.Get() + 1)
		}
	}
	if err != nil {
		w.cfg.Logger.Warn("counting damage of the joint log failed", "file", name, "error", err)
	}
}
