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

// noLife is the life of no journal. While a log is to be replaced, it has the numbers of an earlier life: a sync of it says
// nothing of the events of this one.
const noLife = -1

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
	lives := make([]int, len(dirty))
	for i, d := range dirty {
		d.j.mu.RLock()
		if lives[i] = d.life; d.replacing {
			lives[i] = noLife
		}
		d.j.mu.RUnlock()
	}
	covered := w.syncJoint(dirty)
	for i, d := range dirty {
		life := lives[i]
		if through, ok := covered[d]; ok {
			d.synced(through, life)
			continue
		}
		w.syncing.begin(w.cfg.Now())
		through, err := d.log.Sync()
		if err == nil {
			d.synced(through, life)
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
