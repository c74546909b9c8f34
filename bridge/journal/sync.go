package journal

import "fmt"

// syncs is the goroutine that syncs what was written, an interval later.
func (w *Writer) syncs() {
	defer w.unsynced.timer.Stop()
	for {
		select {
		case <-w.unsynced.timer.C:
			w.unsynced.rang()
			w.syncAll()
			w.syncMoved()
		case <-w.sync:
			w.syncAll()
		case <-w.stop:
			return
		}
	}
}

// syncAll syncs everything written since the last sync, with the values in the joint log.
func (w *Writer) syncAll() {
	w.mu.Lock()
	dirty := w.dirty
	w.dirty = nil
	for _, d := range dirty {
		d.dirty = false
	}
	w.mu.Unlock()
	if w.cfg.Fsync != FsyncInterval {
		return
	}
	defer w.syncing.end()
	covered := w.syncJoint(dirty)
	for _, d := range dirty {
		if at, ok := covered[d]; ok {
			d.synced(at.Seq, at.Epoch)
			continue
		}
		w.syncing.begin(w.cfg.Now())
		epoch := d.log.Epoch() // first: it may become a later one
		through, err := d.log.Sync()
		if err == nil {
			d.synced(through, epoch)
			continue
		}
		d.j.mu.Lock()
		removing := d.removing
		if !removing {
			d.marks = true // its next write makes them safe
			d.degrade(fmt.Errorf("syncing: %w", err))
		}
		d.j.mu.Unlock()
		if !removing {
			w.wake(d)
		}
	}
}
