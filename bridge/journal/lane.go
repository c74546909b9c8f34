package journal

import (
	"cmp"
	"time"
)

// remoteLanes is the number of remote logs that a writer changes at a time.
const remoteLanes = 16

// lane is one goroutine of a writer and the journals that it writes, one after another. A journal stays in its lane, so
// its log is changed from one goroutine. All local logs have the same lane. Journals with remote logs are spread over
// remoteLanes lanes, so that a slow answer delays only the journals of one lane.
type lane struct {
	writer  *Writer
	local   bool // it has all local logs
	writing activity
	kick    chan struct{} // capacity 1
	queue   []*Disk       // guarded by the writer's mu
	untidy  bool          // moving events from the joint log fails
}

// startLane returns a running lane. It ends with the writer.
func (w *Writer) startLane(local bool) *lane {
	l := &lane{writer: w, local: local, kick: make(chan struct{}, 1)}
	w.wg.Go(l.run)
	return l
}

// assign returns the lane of a new journal. Remote lanes start when the first journals need them. The writer's mu is
// held.
func (w *Writer) assign(remote bool) *lane {
	if !remote {
		return w.local
	}
	if len(w.remote) < remoteLanes {
		w.remote = append(w.remote, w.startLane(false))
		return w.remote[len(w.remote)-1]
	}
	l := w.remote[w.next]
	w.next = (w.next + 1) % remoteLanes
	return l
}

// lane returns the lane of a journal. A journal that is closed, of which nothing is written, has the local one. The
// writer's mu is held.
func (w *Writer) lane(d *Disk) *lane { return cmp.Or(w.disks[d], w.local) }

// push queues a journal. The writer's mu is held.
func (l *lane) push(d *Disk) {
	l.queue = append(l.queue, d)
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// run is the goroutine that writes.
func (l *lane) run() {
	tidy := time.NewTicker(l.writer.cfg.TidyEvery)
	defer tidy.Stop()
	var joint <-chan time.Time
	if l.local {
		tick := time.NewTicker(l.writer.cfg.jointEvery)
		defer tick.Stop()
		joint = tick.C
	}
	for {
		select {
		case <-l.kick:
			for disks := l.take(); len(disks) > 0; disks = l.take() {
				l.writer.flush(l, disks)
			}
		case <-joint:
			l.writer.tidyJoint(l)
		case <-tidy.C:
			l.tidy()
		case <-l.writer.stop:
			return
		}
	}
}

// begin records that a change of logs begins.
func (l *lane) begin() {
	l.writing.begin(l.writer.cfg.Now())
	l.writer.watch.request()
}

// take returns the next journals to write: one, or in the local lane those that are waiting.
func (l *lane) take() []*Disk {
	l.writer.mu.Lock()
	defer l.writer.mu.Unlock()
	n := min(len(l.queue), 1)
	if l.local {
		n = min(len(l.queue), maxTogether)
	}
	disks := l.queue[:n:n]
	l.queue = l.queue[n:]
	for _, d := range disks {
		d.queued = false
	}
	return disks
}

// tidy closes idle files and drops old ones.
func (l *lane) tidy() {
	w := l.writer
	w.mu.Lock()
	var disks []*Disk
	for d, its := range w.disks {
		if its == l && !d.dirty && !d.queued {
			disks = append(disks, d)
		}
	}
	w.mu.Unlock()
	l.begin()
	defer l.writing.end()
	for _, d := range disks {
		l.writing.move(w.cfg.Now())
		d.trim()
		_ = d.log.Rest() // nothing unwritten is in it
	}
}
