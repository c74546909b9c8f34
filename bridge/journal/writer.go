package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// Fsync says when what was written is made to outlast a crash of the machine. A crash of
// the process alone loses nothing that was shown, whatever the policy.
type Fsync string

// The policies.
const (
	// FsyncAlways: before it is shown.
	FsyncAlways Fsync = "always"
	// FsyncInterval: within a fraction of a second. Events of that time may be missing
	// after a crash of the machine, which readers are told; numbers are not given twice.
	FsyncInterval Fsync = "interval"
	// FsyncNever: when the operating system sees fit.
	FsyncNever Fsync = "never"
)

// ParseFsync reads a policy.
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
	// stallTimeout is how long a write may take before those who wait for it are served
	// from memory.
	stallTimeout = 2 * time.Second
	// minSegmentBytes bounds the number of files of a journal of which little is kept.
	minSegmentBytes = 64 << 10
	// defaultTidyEvery is how often files are closed that are not written any more, and old
	// ones dropped.
	defaultTidyEvery = time.Minute
)

// ErrStalled reports a disk that does not come back from a write.
var ErrStalled = errors.New("the disk hangs")

// WriterConfig says how journals are kept on disk.
type WriterConfig struct {
	FS       segment.FS
	Fsync    Fsync         // default FsyncInterval
	Interval time.Duration // of FsyncInterval
	// SegmentBytes is the size of a journal's files; by default a quarter of MaxBytes, and
	// segment.DefaultSegmentBytes at most.
	SegmentBytes int64
	// OverrunFile is one file for all journals, by which those of an earlier life can go on
	// when their disk is full; without it they show nothing new then.
	OverrunFile string
	// MaxBytes and MaxAge are what is kept of each journal; zero keeps everything. What is
	// older goes in whole files.
	MaxBytes int64
	MaxAge   time.Duration
	// TidyEvery is how often that is looked at, and files are closed that rest; default a
	// minute.
	TidyEvery time.Duration
	// Patience is how long a disk may go without moving before events that wait for it are
	// given up; default DefaultPatience.
	Patience time.Duration
	Now      func() time.Time
	Logger   *slog.Logger

	boot string // the machine's life
}

// Writer writes the journals of a process to disk, on goroutines of its own.
type Writer struct {
	cfg  WriterConfig
	wg   sync.WaitGroup
	stop chan struct{}
	kick chan struct{} // capacity 1
	sync chan struct{} // capacity 1

	writing, syncing activity
	held             atomic.Int64 // bytes of all journals that wait for the disk

	overruns *segment.Cell // may be nil

	mu      sync.Mutex
	disks   map[*Disk]struct{} // all that are open
	queue   []*Disk
	failing map[*Disk]struct{}
	dirty   []*Disk
	passing bool // bypass runs
}

// NewWriter returns a writer. The caller must Close it, after the journals.
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
	if cfg.SegmentBytes <= 0 && cfg.MaxBytes > 0 {
		cfg.SegmentBytes = min(max(cfg.MaxBytes/4, minSegmentBytes), segment.DefaultSegmentBytes)
	}
	if cfg.boot == "" {
		cfg.boot = boot()
	}
	w := &Writer{
		cfg: cfg, overruns: openOverruns(&cfg), stop: make(chan struct{}), kick: make(chan struct{}, 1), sync: make(chan struct{}, 1),
		disks: map[*Disk]struct{}{}, failing: map[*Disk]struct{}{},
	}
	w.wg.Go(w.run)
	w.wg.Go(w.syncs)
	w.wg.Go(w.stalls)
	return w
}

// Close ends the writer. Journals that are not closed stop being written.
func (w *Writer) Close() {
	close(w.stop)
	w.wg.Wait()
}

// wake has a journal written. A journal's mu may be held.
func (w *Writer) wake(d *Disk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.queued {
		return
	}
	if _, ok := w.failing[d]; ok {
		return // its time comes
	}
	d.queued = true
	w.queue = append(w.queue, d)
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// finishSoon has a journal written and closed, whether or not its disk works.
func (w *Writer) finishSoon(d *Disk) {
	w.mu.Lock()
	delete(w.failing, d)
	w.mu.Unlock()
	w.wake(d)
}

// run writes.
func (w *Writer) run() {
	tidy := time.NewTicker(w.cfg.TidyEvery)
	defer tidy.Stop()
	again := time.NewTicker(minRetry)
	defer again.Stop()
	for {
		select {
		case <-w.kick:
			for d := w.take(); d != nil; d = w.take() {
				w.flush(d)
			}
		case <-again.C:
			w.tryAgain()
		case <-tidy.C:
			w.tidy()
		case <-w.stop:
			return
		}
	}
}

// register notes a journal.
func (w *Writer) register(d *Disk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disks[d] = struct{}{}
}

// take returns the next journal to write, or nil.
func (w *Writer) take() *Disk {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return nil
	}
	d := w.queue[0]
	w.queue = w.queue[1:]
	d.queued = false
	return d
}

// moved notes that a piece was written.
func (w *Writer) moved() { w.writing.move(w.cfg.Now()) }

// syncSoon has what was written synced before its time.
func (w *Writer) syncSoon() {
	select {
	case w.sync <- struct{}{}:
	default:
	}
}

// flush writes a journal's next batch.
func (w *Writer) flush(d *Disk) {
	w.writing.begin(w.cfg.Now())
	defer w.writing.end()
	if w.ended(d) {
		return
	}
	b := d.batch()
	if !b.empty() {
		if err := d.write(b); err != nil {
			d.overrun()
			d.failed(err, b)
			w.mu.Lock()
			w.failing[d] = struct{}{}
			w.mu.Unlock()
			w.finish(d, true)
			return
		}
	}
	w.mu.Lock()
	if !d.dirty && len(b.records) > 0 {
		d.dirty, w.dirty = true, append(w.dirty, d)
	}
	w.mu.Unlock()
	if d.written(b) {
		w.wake(d)
		return
	}
	if !b.last && d.isClosing() { // it began to close meanwhile, and has yet to say so
		w.wake(d)
		return
	}
	w.finish(d, false)
}

// ended drops the log of a journal that is to go, and reports whether it is gone.
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
	_ = d.log.Rest() // the files go
	if err := w.cfg.FS.RemoveAll(d.dir); err != nil {
		w.cfg.Logger.Error("journal not removed", "directory", d.dir, "error", err)
	}
	w.forget(d)
	return true
}

// finish ends a journal that is to close, once it is written, or cannot be.
func (w *Writer) finish(d *Disk, failed bool) {
	if !d.isClosing() {
		return
	}
	if !failed && w.cfg.Fsync != FsyncNever {
		if _, err := d.log.Sync(); err != nil {
			w.cfg.Logger.Error("journal not synced", "directory", d.dir, "error", err)
		}
	}
	_ = d.log.Rest() // synced, or told
	w.forget(d)
}

func (w *Writer) forget(d *Disk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.disks, d)
	delete(w.failing, d)
	w.dirty = slices.DeleteFunc(w.dirty, func(o *Disk) bool { return o == d })
	select {
	case <-d.closed:
	default:
		close(d.closed)
	}
}

// tryAgain wakes journals whose disk failed.
func (w *Writer) tryAgain() {
	w.mu.Lock()
	failing := make([]*Disk, 0, len(w.failing))
	for d := range w.failing {
		failing = append(failing, d)
	}
	w.mu.Unlock()
	now := w.cfg.Now()
	for _, d := range failing {
		d.j.mu.Lock()
		due := !now.Before(d.retryAt)
		d.j.mu.Unlock()
		if !due {
			continue
		}
		w.mu.Lock()
		delete(w.failing, d)
		w.mu.Unlock()
		w.flush(d)
	}
}

// tidy closes files that rest and drops old ones.
func (w *Writer) tidy() {
	w.mu.Lock()
	disks := make([]*Disk, 0, len(w.disks))
	for d := range w.disks {
		if !d.dirty && !d.queued {
			disks = append(disks, d)
		}
	}
	w.mu.Unlock()
	w.writing.begin(w.cfg.Now())
	defer w.writing.end()
	for _, d := range disks {
		w.moved()
		d.trim()
		_ = d.log.Rest() // nothing unwritten is in it
	}
}

// syncs makes what was written outlast a crash of the machine, now and then.
func (w *Writer) syncs() {
	tick := time.NewTicker(w.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.syncAll()
		case <-w.sync:
			w.syncAll()
		case <-w.stop:
			return
		}
	}
}

// stalls looks for writes that hang.
func (w *Writer) stalls() {
	tick := time.NewTicker(stallTimeout / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.unstall()
		case <-w.stop:
			return
		}
	}
}

// syncAll syncs what was written since the last time.
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
	for _, d := range dirty {
		w.syncing.begin(w.cfg.Now())
		d.j.mu.RLock()
		life := d.life
		d.j.mu.RUnlock()
		through, err := d.log.Sync()
		if err == nil {
			d.synced(through, life)
			continue
		}
		d.j.mu.Lock()
		removing := d.removing
		if !removing {
			d.renew, d.marks = true, true
			d.degrade(fmt.Errorf("syncing: %w", err))
		}
		d.j.mu.Unlock()
		if !removing {
			w.wake(d)
		}
	}
}

// unstall lets the readers of journals that wait for a disk that hangs see what is in
// memory.
func (w *Writer) unstall() {
	stalled := w.writing.still(w.cfg.Now()) > stallTimeout
	w.mu.Lock()
	var waiting []*Disk
	for d := range w.disks {
		if stalled {
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

// bypass gives numbers to journals that wait in vain for their reservation. It may hang as
// well, and nobody waits for it then but Close.
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

// Degraded returns the journals whose disk is behind, by directory, each with why.
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
