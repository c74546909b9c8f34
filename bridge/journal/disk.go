package journal

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

const (
	// reserveBlock is the count of numbers reserved on disk at a time. After a crash the unused numbers of a block
	// are skipped, and readers receive a Gap for them.
	reserveBlock = 1 << 20
	// damagedBlocks is the largest count of blocks whose reservations can be lost to damaged marks. Each block stands
	// for half a million events.
	damagedBlocks = 64
	// unbackedNumbers bounds the numbers issued in an epoch that has nothing on disk.
	unbackedNumbers = damagedBlocks * reserveBlock
	// maxBatchBytes is the size of one write for a journal: large enough to need few writes, small enough to stay in
	// the processor's cache.
	maxBatchBytes = 256 << 10
	// maxUnwrittenBytes bounds the durable events waiting for a disk that fails or makes no progress. Beyond it the
	// oldest are not written.
	maxUnwrittenBytes = 32 << 20
	// maxLosses bounds the ranges of missing durable events. Beyond it the oldest ranges are merged.
	maxLosses = 64
	// minRetry and maxRetry bound the pause before a retry after a disk failure.
	minRetry = 250 * time.Millisecond
	maxRetry = 30 * time.Second
	// maxRemoteRetry is maxRetry for a log across a network, whose events nobody sees before they are written.
	maxRemoteRetry = time.Second
)

// ErrBacklog reports events that were not written because the disk accepted them too slowly.
var ErrBacklog = errors.New("the disk does not accept the events")

// Disk is a journal's log. OpenDisk creates it; pass it to New.
type Disk struct {
	dir    string
	log    backend.Log
	writer *Writer
	ids    idTable[uint64]   // of the events recovered, until attach
	last   map[string]uint64 // the last event recovered of each type, of the main agent
	// inherited reports that an earlier process wrote events to the log.
	inherited bool
	// provisional is a file to create before the first write. Only the writer's goroutine uses it.
	provisional string

	// The journal's mu guards the following fields.
	j         *Journal
	start     uint64 // the last number that an earlier life may have given
	passed    bool   // it has not: numbers before it were passed over
	reserved  uint64 // numbers up to this one may be shown
	unbacked  bool   // nothing on disk is of this epoch
	marked    uint64 // no mark on disk tells of more overruns
	safe      uint64 // events up to this one need not be in memory
	losses    []loss
	flight    []*Record     // durable, being written
	unwritten []*Record     // durable, waiting behind them, oldest first
	bytes     int           // of unwritten
	held      int           // bytes of flight and unwritten
	moved     chan struct{} // closed when held decreases; nil without a waiting caller
	marks     bool          // the mark on disk is not what it should be
	replacing bool          // the log is to begin anew with unwritten
	touched   bool          // this life of the process has written to it
	degraded  error         // why the disk is behind
	retry     time.Duration
	closing   bool
	removing  bool
	closed    chan struct{}

	owed   bool // EndBatch is to have it written; guarded by the journal's mu
	queued bool // guarded by the writer's mu
	dirty  bool // same: it has what is not synced
	// again, set from a failed write on, schedules the next one. Guarded by the writer's mu.
	again *time.Timer
}

// Recovery is the result of reading a log from disk.
type Recovery struct {
	// Recovered is what the log found. Doubtful reports that what the session has put into the log that many share may be
	// missing.
	backend.Recovered
	// New reports that there was no log.
	New bool
	// Events is the count of events found.
	Events int
	// Clean reports that the journal had been closed properly.
	Clean bool
	// Lost reports that durable events that readers have seen may be missing. Readers receive a Gap.
	Lost bool
}

// OpenDisk is OpenLog for a process without a data directory. The directory dir + ".joint" has the joint log of this and
// all further journals of the writer.
func OpenDisk(dir string, epoch uint64, w *Writer) (*Disk, Recovery, error) {
	logs := w.joined.Load()
	if logs == nil {
		var err error
		if logs, err = OpenFolders(w, dir+".joint", func(dir string) string { return dir }); err != nil {
			return nil, Recovery{}, err
		}
		logs.Start(nil)
	}
	return OpenLog(logs, dir, 1, epoch, dir, w)
}

// OpenLog opens the log of a session for the owner of a term. It starts a log with the given epoch if there is none or if
// it is unreadable. Events keep their positions even after damage: readers receive a Gap for ranges with missing events.
// name is for log messages and Degraded.
func OpenLog(logs backend.Logs, session string, term, epoch uint64, name string, w *Writer) (*Disk, Recovery, error) {
	d := &Disk{dir: name, writer: w, last: map[string]uint64{}, closed: make(chan struct{})}
	var rec Recovery
	log, found, err := logs.Open(session, term, epoch, func(n uint64, body []byte) error {
		r, err := ParseRecord(Position{Seq: n}, body)
		if err != nil {
			return err
		}
		rec.Events++
		if r.Agent == "" {
			d.last[r.Type] = n
		}
		if r.ID != (ID{}) {
			d.ids.set(r.ID, n)
		}
		return nil
	})
	if err != nil {
		return nil, rec, fmt.Errorf("opening the journal in %q: %w", name, err)
	}
	d.log = log
	rec.New = log.Size() == 0 && !found.Damaged()
	d.inherited = rec.Events > 0 || found.Damaged()
	rec.Recovered = found
	d.number(&rec)
	d.passed = !rec.Clean && d.start > log.Last()
	d.reserved, d.safe = d.start, log.Last()
	return d, rec, nil
}

// Provisional names an empty file to create before the log's first write.
func (d *Disk) Provisional(name string) { d.provisional = name }

// number determines the last used number of the log and the ranges of missing events.
func (d *Disk) number(rec *Recovery) {
	log, w, found := d.log, d.writer, &rec.Recovered
	m, known := parseMark(found.Mark)
	rec.Clean = known && m.clean && !found.Unsure
	found.Doubtful = found.Doubtful || found.Altered && m.boot == w.cfg.boot
	d.start, d.losses, d.unbacked = max(m.reserved, log.Last()), m.losses, log.Size() == 0
	d.marked = max(w.overruns.Get(), m.overruns)
	overruns := d.marked - m.overruns
	tail := false // events behind the last one may be missing
	switch {
	case d.unbacked: // of this epoch nothing was ever shown
		rec.Lost = found.Damaged()
		return
	case !known && log.Last() == 0 && !found.Damaged():
		d.start = 2 * unbackedNumbers // of a life that got no further than its first file
	case found.Unsure || !known:
		d.start += 2 * unbackedNumbers // reservations may be missing too
		tail = true
	case m.clean:
	case found.Doubtful, m.boot != w.cfg.boot && w.cfg.Fsync != FsyncAlways:
		tail = true
	}
	if overruns > 0 {
		d.start += overruns * overrunBlock
		tail, rec.Clean = true, false
	}
	for _, h := range found.Holes {
		rec.Lost = d.lose(h.After, h.Through) || rec.Lost
	}
	if tail {
		d.lose(log.Last(), d.start)
		rec.Lost = true
	}
}

// boot identifies the life of the machine, where that can be known.
var boot = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
})

// attach connects the log with the journal, which continues at the log's end.
func (d *Disk) attach(j *Journal) {
	d.j, j.cfg.Epoch = j, d.log.Epoch()
	j.nextSeq, j.shownSeq, j.horizon = d.start+1, d.start, d.start
	j.evicted = d.log.Last()
	j.seen.durable, d.ids = d.ids, idTable[uint64]{}
	d.writer.register(d)
	d.writer.wake(d) // numbers are reserved before the first is wanted
}

// lose records a range in which durable events may be missing, and reports whether it is new. The ranges are sorted
// and do not touch.
func (d *Disk) lose(from, to uint64) bool {
	if from >= to || d.isLost(from, to) {
		return false
	}
	i := sort.Search(len(d.losses), func(i int) bool { return d.losses[i].to >= from })
	k := i
	for ; k < len(d.losses) && d.losses[k].from <= to; k++ {
		from, to = min(from, d.losses[k].from), max(to, d.losses[k].to)
	}
	d.losses = slices.Replace(slices.Clone(d.losses), i, k, loss{from, to})
	if len(d.losses) > maxLosses {
		d.losses[1].from = d.losses[0].from
		d.losses = d.losses[1:]
	}
	d.marks = true
	return true
}

// isLost reports whether a range lies within a known range of missing events.
func (d *Disk) isLost(from, to uint64) bool {
	return slices.ContainsFunc(d.losses, func(l loss) bool { return l.from <= from && to <= l.to })
}

// pushed queues a record that was added to the journal. The journal's mu is held.
func (d *Disk) pushed(r *Record) {
	if r.durable() {
		d.unwritten = append(d.unwritten, r)
		d.bytes += r.size()
		d.hold(r.size())
		if d.bytes > maxUnwrittenBytes && d.hopeless() {
			d.overflow()
		}
		d.wake()
	} else if d.j.nextSeq+reserveBlock/2 > d.reserved+1 {
		d.wake()
	}
}

// wake schedules a write of the journal, after the current batch if there is one. The journal's mu is held.
func (d *Disk) wake() {
	if d.j.batching.Load() {
		d.owed = true
		return
	}
	d.writer.wake(d)
}

// endBatch ends a batch. A closing journal is scheduled in any case. The journal's mu is held.
func (d *Disk) endBatch() {
	if d.owed && !d.closing {
		d.writer.wake(d)
	}
	d.owed = false
}

// overflow drops the oldest unwritten events from disk and memory while too many wait. The order of the others does
// not change.
func (d *Disk) overflow() {
	from := d.log.Last()
	if len(d.flight) > 0 { // they may be stuck for good
		from = d.flight[0].Pos.Seq - 1
	}
	if n := len(d.losses); n > 0 {
		from = max(from, d.losses[n-1].to)
	}
	for len(d.unwritten) > 1 && d.bytes > maxUnwrittenBytes/4*3 {
		r := d.unwritten[0]
		d.unwritten = d.unwritten[1:]
		d.bytes -= r.size()
		d.hold(-r.size())
		d.j.counts().givenUp.Add(1)
		d.lose(from, r.Pos.Seq)
		from, d.safe = r.Pos.Seq, r.Pos.Seq
	}
	d.degrade(ErrBacklog)
	d.j.evict(maxCachedBytes)
}

// limit returns how far readers of a journal at off and seq may read.
func (d *Disk) limit(off, seq uint64) (uint64, uint64) {
	if !d.ahead() {
		if len(d.flight) > 0 {
			off, seq = d.flight[0].off-1, d.flight[0].Pos.Seq-1
		} else if len(d.unwritten) > 0 {
			off, seq = d.unwritten[0].off-1, d.unwritten[0].Pos.Seq-1
		}
	}
	if seq > d.ceiling() {
		seq = d.reserved
		records := d.j.records
		if i := sort.Search(len(records), func(i int) bool { return records[i].Pos.Seq > seq }); i < len(records) {
			off = records[i].off - 1
		}
	}
	return off, seq
}

// ceiling is the last number that may be delivered. Without anything on disk the next process could not continue the
// epoch.
func (d *Disk) ceiling() uint64 {
	if d.ahead() && d.unbacked {
		return unbackedNumbers
	}
	return d.reserved
}

// ahead reports whether events are delivered before they are written: after the end of the process they may be missing.
// Those of a remote log are not, because another process may have to give every reader the same.
func (d *Disk) ahead() bool { return d.degraded != nil && !d.log.Remote() }

// degrade records that the disk is behind or failing. From now on events of a local log are delivered before they are
// written, and may be lost at a crash. The journal's mu is held.
func (d *Disk) degrade(err error) {
	if d.degraded == nil {
		d.writer.cfg.Logger.Error("journal writes to disk fail or are late", "directory", d.dir, "error", err)
	}
	d.degraded = err
	d.j.show()
	d.wakeWaiting()
}

// batch is the content of one write.
type batch struct {
	records   []*Record
	size      int  // of the records
	last      bool // nothing is to be written after it
	mark      *mark
	replacing bool // with everything
	epoch     uint64
}

func (b *batch) empty() bool { return len(b.records) == 0 && b.mark == nil && !b.replacing }

// batch takes the next records to write.
func (d *Disk) batch() *batch {
	d.j.mu.Lock()
	defer d.j.mu.Unlock()
	n, size := 0, 0
	for n < len(d.unwritten) && (size < maxBatchBytes || d.replacing) {
		size += d.unwritten[n].size()
		n++
	}
	d.flight, d.unwritten = d.unwritten[:n:n], d.unwritten[n:]
	d.bytes -= size
	b := &batch{records: d.flight, size: size, replacing: d.replacing, epoch: d.j.cfg.Epoch}
	given := d.j.nextSeq - 1
	closing := d.closing && len(d.unwritten) == 0
	b.last = closing
	changed := d.touched || len(d.flight) > 0 || given > d.start || d.replacing
	if closing && changed || !closing && (given+reserveBlock/2 > d.reserved || d.marks || d.replacing) { // else it is as it was found
		b.mark = &mark{
			clean: closing, reserved: max(given+reserveBlock, d.reserved), boot: d.writer.cfg.boot,
			losses: slices.Clone(d.losses), overruns: max(d.marked, d.writer.overruns.Get()),
			doubts: d.writer.doubts.Load().Get(),
		}
		if closing {
			b.mark.reserved = given
		}
		d.marked = b.mark.overruns
	}
	d.marks = false
	d.touched = d.touched || !b.empty()
	return b
}

// write puts a batch on disk.
func (d *Disk) write(b *batch) error {
	if d.provisional != "" {
		if err := d.makeProvisional(); err != nil {
			return err
		}
	}
	last := d.log.Last()
	var err error
	if b.replacing && d.log.Epoch() < b.epoch { // an earlier try may have come so far
		err = d.log.Replace(b.epoch, d.entries(b, 0))
	} else {
		err = d.log.Append(last, d.entries(b, last))
	}
	policy := d.writer.cfg.Fsync
	if err != nil || policy != FsyncAlways && (b.mark == nil || policy == FsyncNever) {
		return err
	}
	_, err = d.log.Sync()
	return err
}

// entries returns a batch as entries of a log. It leaves out records up to a number, which an earlier try has written.
func (*Disk) entries(b *batch, written uint64) []backend.Entry {
	entries := make([]backend.Entry, 0, len(b.records)+1)
	if b.mark != nil {
		entries = append(entries, backend.Entry{Mark: true, Body: b.mark.append(nil)})
	}
	heads := make([]byte, 0, 64*len(b.records)) // grown, it leaves the earlier ones where they are
	for _, r := range b.records {
		if r.Pos.Seq > written {
			begin := len(heads)
			heads = appendHead(heads, r)
			head := heads[begin:len(heads):len(heads)]
			entries = append(entries, backend.Entry{Number: r.Pos.Seq, Head: head, Body: r.JSON})
		}
	}
	return entries
}

// makeProvisional creates the file that Provisional named.
func (d *Disk) makeProvisional() error {
	fsys := d.writer.cfg.FS
	if err := fsys.MkdirAll(d.dir); err != nil {
		return err
	}
	file, err := fsys.Open(d.provisional, true)
	if err != nil {
		return err
	}
	d.provisional = ""
	return file.Close()
}

func (d *Disk) isClosing() bool {
	d.j.mu.RLock()
	defer d.j.mu.RUnlock()
	return d.closing
}

// written marks a batch as written, and reports whether there is more to write.
func (d *Disk) written(b *batch) (more bool) {
	d.j.mu.Lock()
	defer d.j.mu.Unlock()
	if b.epoch != d.j.cfg.Epoch {
		return true // it is of an epoch that is over
	}
	if d.degraded != nil && len(d.unwritten) == 0 {
		d.writer.cfg.Logger.Info("journal is completely on disk again", "directory", d.dir)
		d.degraded = nil
	}
	d.retry = 0
	if b.mark != nil {
		d.reserved, d.unbacked = max(d.reserved, b.mark.reserved), false
	}
	d.hold(-b.size)
	d.flight, d.replacing = nil, false
	if d.writer.cfg.Fsync != FsyncInterval {
		d.safe = max(d.safe, d.log.Last())
	}
	d.j.evict(maxCachedBytes)
	d.j.show()
	return len(d.unwritten) > 0 || d.marks
}

// failed puts back a batch whose write failed, and returns the pause before the next write.
func (d *Disk) failed(err error, b *batch) time.Duration {
	d.j.mu.Lock()
	defer d.j.mu.Unlock()
	if b.epoch == d.j.cfg.Epoch {
		d.takeBack()
		if d.unbacked && b.mark != nil && d.log.Size() > 0 {
			// The mark may have reached the disk: numbers up to its reservation may be delivered.
			d.reserved, d.unbacked = max(d.reserved, b.mark.reserved), false
		}
	}
	d.marks = true
	limit := maxRetry
	if d.log.Remote() {
		limit = maxRemoteRetry
	}
	d.retry = min(max(2*d.retry, minRetry), limit)
	d.degrade(err)
	return d.retry
}

// takeBack puts a batch back in front of the unwritten records.
func (d *Disk) takeBack() {
	lost := uint64(0) // an overflow meanwhile has given up the batch too
	if n := len(d.losses); n > 0 {
		lost = d.losses[n-1].to
	}
	kept := make([]*Record, 0, len(d.flight))
	for _, r := range d.flight {
		if r.Pos.Seq <= lost {
			d.hold(-r.size())
			continue
		}
		kept = append(kept, r)
		d.bytes += r.size()
	}
	d.flight = kept
	d.unwritten, d.flight = append(d.flight, d.unwritten...), nil
}

// synced records that everything up to a number is synced in a log of an epoch. A log that is to be replaced has an earlier
// one than the journal: its sync says nothing of the journal's events.
func (d *Disk) synced(through, epoch uint64) {
	d.j.mu.Lock()
	defer d.j.mu.Unlock()
	if epoch != d.j.cfg.Epoch {
		return
	}
	d.safe = max(d.safe, through)
	d.j.evict(maxCachedBytes)
	d.wakeWaiting()
}

// next returns the first event on disk after a number. It skips damage.
func (d *Disk) next(after uint64) (r *Record, ok bool) {
	if d == nil {
		return nil, false
	}
	epoch := d.j.epochNow()
	err := segment.ReadPast(d.log, after, func(n uint64, body []byte) bool {
		var err error
		r, err = ParseRecord(Position{Epoch: epoch, Seq: n}, body)
		ok = err == nil
		return !ok
	})
	return r, ok && err == nil
}

// trim drops the oldest events according to the writer's retention.
func (d *Disk) trim() {
	var before time.Time
	if age := d.writer.cfg.MaxAge; age > 0 {
		before = d.writer.cfg.Now().Add(-age)
	}
	trimmed, err := d.log.Trim(d.writer.cfg.MaxBytes, before)
	if err != nil {
		d.writer.cfg.Logger.Warn("deleting old events from disk failed", "directory", d.dir, "error", err)
	}
	d.j.mu.Lock()
	defer d.j.mu.Unlock()
	d.losses = slices.DeleteFunc(d.losses, func(l loss) bool { return l.to <= trimmed })
}

// restart replaces the log by the records that follow. The journal's mu is held.
func (d *Disk) restart() {
	d.unwritten, d.flight, d.bytes, d.losses = nil, nil, 0, nil
	d.hold(-d.held)
	d.start, d.reserved, d.safe = 0, 0, 0
	d.replacing, d.unbacked = true, true
	d.writer.wake(d)
}
