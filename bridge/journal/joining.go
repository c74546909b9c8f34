package journal

import (
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/joint"
)

const (
	// maxTogether bounds the journals written at once, and so how long the first of them waits for the others.
	maxTogether = 64
	// maxJoining is the size from which a batch is worth a write of its own, which costs less than to write it twice.
	maxJoining = 32 << 10
)

// joining is a batch that goes to the joint log.
type joining struct {
	disk  *Disk
	batch *batch
	own   *ownedLog
}

// joins returns the log of a journal if a batch of it goes to the joint log, as events do, else nil.
func (w *Writer) joins(d *Disk, b *batch) *ownedLog {
	own, ok := d.log.(*ownedLog)
	// Marks, and what needs them, are in the journal's own log only. A full tail has to go there.
	if !ok || len(b.records) == 0 || b.mark != nil || b.replacing || b.last || b.size >= maxJoining || own.Full() {
		return nil
	}
	return own
}

// flushTogether writes batches to the joint log, or else each to the log of its journal.
func (w *Writer) flushTogether(l *lane, batches []joining) {
	if len(batches) == 0 {
		return
	}
	log := w.joined.Load().joint
	parts := make([]joint.Part, 0, len(batches))
	var held, stale []joining
	for _, j := range batches {
		last := j.own.Last()
		mine := slices.ContainsFunc(held, func(h joining) bool { return h.own.term == j.own.term })
		if mine || j.own.term.hold(j.own.number) != nil { // one of two owners is stale
			stale = append(stale, j)
			continue
		}
		held = append(held, j)
		parts = append(parts, joint.Part{Member: j.own.Member, Entries: j.disk.entries(j.batch, last)})
	}
	err := log.Append(parts)
	for _, j := range held {
		j.own.term.release()
	}
	if err == nil && w.cfg.Fsync == FsyncAlways {
		if err = log.Sync(); err != nil {
			for _, j := range held {
				_ = j.own.Move() // else the write finds it out
			}
		}
	}
	for _, j := range held {
		if err != nil {
			w.flushAlone(j.disk, j.batch)
		} else {
			w.wrote(j.disk, j.batch)
		}
	}
	for _, j := range stale {
		w.flushAlone(j.disk, j.batch)
	}
	if log.Full() {
		w.tidyJoint(l)
	}
}

// tidyJoint moves events from the joint log to the logs of their journals, if it is time. The goroutine of the local
// lane calls it.
func (w *Writer) tidyJoint(l *lane) {
	folders := w.joined.Load()
	if folders == nil || !folders.joint.Due() {
		return
	}
	l.begin()
	defer l.writing.end()
	err := folders.joint.Tidy(func(sessions []string, values []joint.ID) error {
		folders.moveSoon(sessions, values)
		return nil
	})
	if err != nil && !l.untidy {
		w.cfg.Logger.Warn("moving events from the joint log to their journals failed", "error", err)
	}
	l.untidy = err != nil
	if folders.joint.Leaving() {
		w.unsynced.request()
	}
}

// syncJoint syncs the joint log. It returns the last event of each of the journals for which that was enough, by the
// journal's log.
func (w *Writer) syncJoint(dirty []*Disk) map[*Disk]Position {
	folders := w.joined.Load()
	if folders == nil {
		return nil
	}
	covered := make(map[*Disk]Position, len(dirty))
	for _, d := range dirty {
		if own, ok := d.log.(*ownedLog); ok {
			epoch := own.Epoch() // first: it may become a later one
			if last, ok := own.Covered(); ok {
				covered[d] = Position{Epoch: epoch, Seq: last}
			}
		}
	}
	w.syncing.begin(w.cfg.Now())
	if folders.joint.Sync() != nil {
		return nil // each journal finds it out, and values are stored elsewhere
	}
	return covered
}

// syncMoved syncs journals whose events are to leave the joint log.
func (w *Writer) syncMoved() {
	if folders := w.joined.Load(); folders != nil {
		w.syncing.begin(w.cfg.Now())
		defer w.syncing.end()
		folders.joint.SyncMoved(w.cfg.Interval / 2)
		if folders.joint.Leaving() { // what was not synced in this time, or what the log has not dropped yet
			w.unsynced.request()
		}
	}
}
