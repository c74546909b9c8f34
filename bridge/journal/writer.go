package journal

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/joint"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// Fsync is the policy for syncing written events, so that they survive a crash of the machine. Events that were
// delivered always survive a crash of the process.
type Fsync string

const (
	// FsyncAlways syncs events before they are delivered.
	FsyncAlways Fsync = "always"
	// FsyncInterval syncs within a fraction of a second. A crash of the machine can lose the events of that time.
	// Readers then receive a Gap; numbers are not used twice.
	FsyncInterval Fsync = "interval"
	// FsyncNever leaves syncing to the operating system.
	FsyncNever Fsync = "never"
)

// ParseFsync parses a policy.
func ParseFsync(text string) (Fsync, error) {
	switch f := Fsync(text); f {
	case FsyncAlways, FsyncInterval, FsyncNever:
		return f, nil
	}
	return "", fmt.Errorf("fsync policy %q is none of %q, %q, %q", text, FsyncAlways, FsyncInterval, FsyncNever)
}

const (
	// DefaultFsyncInterval is the default of WriterConfig.Interval.
	DefaultFsyncInterval = 200 * time.Millisecond
	// stallTimeout is the duration of a write after which readers are served from memory.
	stallTimeout = 2 * time.Second
	// minSegmentBytes bounds the number of files of a journal with a small MaxBytes.
	minSegmentBytes = 64 << 10
	// defaultTidyEvery is the interval at which idle files are closed and old ones dropped.
	defaultTidyEvery = time.Minute
)

// ErrStalled reports a disk that does not complete a write.
var ErrStalled = errors.New("the disk does not respond")

// WriterConfig configures a Writer.
type WriterConfig struct {
	FS       segment.FS
	Fsync    Fsync         // default FsyncInterval
	Interval time.Duration // of FsyncInterval
	// SegmentBytes is the size of a journal's files. The default is a quarter of MaxBytes, at most
	// segment.DefaultSegmentBytes.
	SegmentBytes int64
	// OverrunFile is one file for all journals. It permits journals of an earlier process to continue on a full disk;
	// without it they deliver nothing new then.
	OverrunFile string
	// MaxBytes and MaxAge are the retention of each journal; zero stores everything. Only whole files are dropped.
	MaxBytes int64
	MaxAge   time.Duration
	// TidyEvery is the interval at which retention is applied and idle files are closed. The default is a minute.
	TidyEvery time.Duration
	// Patience is how long a disk may make no progress before waiting events are dropped. The default is
	// DefaultPatience.
	Patience time.Duration
	Now      func() time.Time
	Logger   *slog.Logger

	boot       string // the machine's life
	limits     joint.Limits
	jointEvery time.Duration // the interval at which the joint log is looked at; default a second
}

// Writer writes the journals of a process to disk. It has its own goroutines, which Close ends.
type Writer struct {
	cfg  WriterConfig
	wg   sync.WaitGroup
	stop chan struct{}
	sync chan struct{} // capacity 1

	local   *lane // of the logs in files
	syncing activity
	// unsynced is requested by what is written and not synced, watch by a change of logs.
	unsynced, watch *alarm
	held            atomic.Int64 // bytes of all journals that wait for the disk

	overruns *segment.Cell                // may be nil
	doubts   atomic.Pointer[segment.Cell] // may be nil
	// joined are the logs of local journals, nil before Folders.Start.
	joined atomic.Pointer[Folders]

	mu      sync.Mutex
	remote  []*lane         // of the other logs, at most remoteLanes
	next    int             // index of the remote lane that gets the next journal
	disks   map[*Disk]*lane // all that are open
	dirty   []*Disk
	passing bool // bypass runs
}

// NewWriter returns a running writer. The caller must Close it after the journals.
func NewWriter(cfg WriterConfig) *Writer {
	if cfg.FS == nil {
		cfg.FS = segment.OS{}
	}
	if cfg.Fsync == "" {
		cfg.Fsync = FsyncInterval
	}
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultFsyncInterval
	}
	if cfg.TidyEvery <= 0 {
		cfg.TidyEvery = defaultTidyEvery
	}
	if cfg.Patience <= 0 {
		cfg.Patience = DefaultPatience
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.jointEvery = cmp.Or(cfg.jointEvery, time.Second)
	if cfg.SegmentBytes <= 0 && cfg.MaxBytes > 0 {
		cfg.SegmentBytes = min(max(cfg.MaxBytes/4, minSegmentBytes), segment.DefaultSegmentBytes)
	}
	if cfg.boot == "" {
		cfg.boot = boot()
	}
	w := &Writer{
		cfg: cfg, overruns: openOverruns(&cfg), stop: make(chan struct{}),
		sync:     make(chan struct{}, 1),
		unsynced: newAlarm(cfg.Interval), watch: newAlarm(stallTimeout / 4),
		disks: map[*Disk]*lane{},
	}
	w.local = w.startLane(true)
	w.wg.Go(w.syncs)
	w.wg.Go(w.stalls)
	return w
}

// Close ends the writer. Journals that are still open are no longer written.
func (w *Writer) Close() {
	close(w.stop)
	w.wg.Wait()
}

// stopped reports whether Close was called.
func (w *Writer) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// wake schedules a write of a journal. A journal's mu may be held.
func (w *Writer) wake(d *Disk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.queued || d.again != nil { // its time comes
		return
	}
	d.queued = true
	w.lane(d).push(d)
}

// wakeLater schedules a write of a journal whose disk has failed, after a pause.
func (w *Writer) wakeLater(d *Disk, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.again == nil {
		d.again = time.AfterFunc(pause, func() { w.wakeNow(d) })
	}
}

// wakeNow schedules a write of a journal, whether or not its disk has failed.
func (w *Writer) wakeNow(d *Disk) {
	w.mu.Lock()
	if d.again != nil {
		d.again.Stop()
		d.again = nil
	}
	w.mu.Unlock()
	w.wake(d)
}

// register adds a journal and assigns its lane.
func (w *Writer) register(d *Disk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disks[d] = w.assign(d.log.Remote())
}

// moved records that a piece was written to a local log.
func (w *Writer) moved() {
	w.local.writing.move(w.cfg.Now())
	w.unsynced.request()
}

// syncSoon requests a sync before the next interval.
func (w *Writer) syncSoon() {
	select {
	case w.sync <- struct{}{}:
	default:
	}
}

// flush writes the next batches of journals. The goroutine of their lane calls it.
func (w *Writer) flush(l *lane, disks []*Disk) {
	l.begin()
	defer l.writing.end()
	var together []joining
	for _, d := range disks {
		if w.ended(d) {
			continue
		}
		b := d.batch()
		if own := w.joins(d, b); own != nil {
			together = append(together, joining{d, b, own})
		} else {
			w.flushAlone(d, b)
		}
	}
	w.flushTogether(l, together)
}

// flushAlone writes a batch to the log of its journal.
func (w *Writer) flushAlone(d *Disk, b *batch) {
	if !b.empty() {
		if err := d.write(b); err != nil {
			d.overrun()
			w.wakeLater(d, d.failed(err, b))
			w.finish(d, true)
			return
		}
	}
	w.wrote(d, b)
}

// wrote records that a batch is in its log, and schedules what is to follow.
func (w *Writer) wrote(d *Disk, b *batch) {
	w.mu.Lock()
	if !d.dirty && len(b.records) > 0 {
		d.dirty, w.dirty = true, append(w.dirty, d)
		w.unsynced.request()
	}
	w.mu.Unlock()
	if d.written(b) {
		w.wake(d)
		return
	}
	if b.last {
		w.finish(d, false)
	} else if d.isClosing() { // it began to close after the batch was taken: its last write is yet to come
		w.wake(d)
	}
}

// ended closes the log of a journal that is to be removed, and reports whether it is gone.
func (w *Writer) ended(d *Disk) bool {
	select {
	case <-d.closed:
		return true // the directory may be another's by now
	default:
	}
	d.j.mu.Lock()
	removing := d.removing
	d.j.mu.Unlock()
	if !removing {
		return false
	}
	if err := d.log.Delete(); err != nil {
		w.cfg.Logger.Error("removing a journal failed", "directory", d.dir, "error", err)
	}
	w.forget(d)
	return true
}

// finish closes a journal after its last write, or after that write has failed.
func (w *Writer) finish(d *Disk, failed bool) {
	if !d.isClosing() {
		return
	}
	if !failed && w.cfg.Fsync != FsyncNever {
		if _, err := d.log.Sync(); err != nil {
			w.cfg.Logger.Error("syncing a journal failed", "directory", d.dir, "error", err)
		}
	}
	_ = d.log.Rest() // synced, or told
	w.forget(d)
}

func (w *Writer) forget(d *Disk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.disks, d)
	w.dirty = slices.DeleteFunc(w.dirty, func(o *Disk) bool { return o == d })
	select {
	case <-d.closed:
	default:
		close(d.closed)
	}
}

// stalls is the goroutine that detects stalled writes.
func (w *Writer) stalls() {
	defer w.watch.timer.Stop()
	for {
		select {
		case <-w.watch.timer.C:
			w.watch.rang()
			w.unstall()
			if w.writes() {
				w.watch.request()
			}
		case <-w.stop:
			return
		}
	}
}

// writes reports whether logs are being changed.
func (w *Writer) writes() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.local.writing.busy() || slices.ContainsFunc(w.remote, func(l *lane) bool { return l.writing.busy() })
}

// unstall lets readers of journals with a stalled disk read from memory.
func (w *Writer) unstall() {
	now := w.cfg.Now()
	w.mu.Lock()
	var waiting []*Disk
	for d, l := range w.disks {
		if l.writing.still(now) > stallTimeout {
			waiting = append(waiting, d)
		}
	}
	w.mu.Unlock()
	var short []*Disk
	for _, d := range waiting {
		d.j.mu.Lock()
		hidden := d.j.nextSeq-1 > d.ceiling()
		if len(d.flight)+len(d.unwritten) > 0 || hidden {
			d.degrade(ErrStalled)
		}
		if hidden {
			short = append(short, d)
		}
		d.j.mu.Unlock()
	}
	w.bypass(short)
}

// bypass raises the overrun count for journals whose reservation is stalled. It can stall too; only Close waits for
// it.
func (w *Writer) bypass(short []*Disk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.passing || len(short) == 0 {
		return
	}
	w.passing = true
	w.wg.Go(func() {
		for _, d := range short {
			d.overrun()
			d.j.mu.Lock()
			d.j.show()
			d.j.mu.Unlock()
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.passing = false
	})
}

// Degraded returns the journals whose disk is behind, by directory, with the reason.
func (w *Writer) Degraded() map[string]error {
	w.mu.Lock()
	disks := make([]*Disk, 0, len(w.disks))
	for d := range w.disks {
		disks = append(disks, d)
	}
	w.mu.Unlock()
	out := map[string]error{}
	for _, d := range disks {
		d.j.mu.RLock()
		if d.degraded != nil {
			out[d.dir] = d.degraded
		}
		d.j.mu.RUnlock()
	}
	return out
}
