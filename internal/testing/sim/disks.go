package sim

import (
	"bytes"
	"context"
	"io/fs"
	"maps"
	"slices"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// disks are what a process of the bridge stores.
type disks struct {
	log    *logDisk
	outbox *files
	// logs are in place of log in a cluster.
	logs *sharedLogs
	// states keeps the saved state in a cluster.
	states *volume
}

// parts are those of the storage of a cluster.
func (d disks) parts() []*volume { return []*volume{&d.logs.volume, &d.outbox.volume, d.states} }

// attempt is that of the saved state.
func (d disks) attempt() (made, answered bool) {
	if d.states == nil {
		return true, true
	}
	return d.states.attempt()
}

// newDisks returns the disks of a process that begins with what an earlier one has left, or with nothing. point is called
// before, within and after each change. refused is called when a replica of a cluster learns that its term is over.
func newDisks(left *disks, point, refused func()) disks {
	d := disks{
		&logDisk{&faultfs.FS{}, point}, &files{volume: volume{point: point, refused: refused}, content: map[string][]byte{}},
		newSharedLogs(point, refused), &volume{point: point, refused: refused, patience: callTimeout},
	}
	if left != nil {
		d.log.FS, d.outbox.content, d.logs.logs = left.log.FS, left.outbox.content, left.logs.logs
	}
	return d
}

// clone returns what the disks have now.
func (d disks) clone() disks {
	d.outbox.mu.Lock()
	defer d.outbox.mu.Unlock()
	next := disks{&logDisk{FS: d.log.Restart(false)}, &files{content: map[string][]byte{}}, d.logs.clone(func() {}, func() {}), &volume{}}
	for name, data := range d.outbox.content {
		next.outbox.content[name] = bytes.Clone(data)
	}
	return next
}

// logDisk is the file system of the journal. The methods that change nothing are those of faultfs.FS.
type logDisk struct {
	*faultfs.FS
	point func()
}

// Open implements segment.FS.
func (d *logDisk) Open(name string, write bool) (segment.File, error) {
	if write {
		d.point()
	}
	f, err := d.FS.Open(name, write)
	return &logFile{f, d.point}, err
}

// Rename implements segment.FS.
func (d *logDisk) Rename(from, to string) error {
	d.point()
	defer d.point()
	return d.FS.Rename(from, to)
}

// RemoveAll implements segment.FS.
func (d *logDisk) RemoveAll(name string) error {
	d.point()
	defer d.point()
	return d.FS.RemoveAll(name)
}

// logFile is a file of the journal.
type logFile struct {
	segment.File
	point func()
}

// WriteAt implements segment.File.
func (f *logFile) WriteAt(p []byte, at int64) (int, error) {
	f.point()
	half := len(p) / 2
	if _, err := f.File.WriteAt(p[:half], at); err != nil {
		return 0, err
	}
	f.point()
	defer f.point()
	n, err := f.File.WriteAt(p[half:], at+int64(half))
	return half + n, err
}

// Truncate implements segment.File.
func (f *logFile) Truncate(size int64) error {
	f.point()
	defer f.point()
	return f.File.Truncate(size)
}

// files keeps the files of the outbox. It implements outbox.Disk.
type files struct {
	volume
	content map[string][]byte
	// stale: it refuses the changes of this owner.
	stale bool
}

// stateFile has the state of the outbox.
const stateFile = "log"

// Load implements outbox.Disk.
func (f *files) Load() ([]byte, error) { return f.Read(stateFile) }

// Save implements outbox.Disk.
func (f *files) Save(state []byte) error { return f.Write(stateFile, state) }

// List implements outbox.Disk.
func (f *files) List() ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.content)), nil
}

// Read implements outbox.Disk.
func (f *files) Read(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, ok := f.content[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return bytes.Clone(data), nil
}

// Write implements outbox.Disk.
func (f *files) Write(name string, data []byte) error {
	return f.change(func() { f.content[name] = bytes.Clone(data) })
}

// Remove implements outbox.Disk.
func (f *files) Remove(name string) error {
	return f.change(func() { delete(f.content, name) })
}

// change makes a change of the files.
func (f *files) change(make func()) error {
	return f.volume.change(func() error {
		if f.stale {
			return backend.ErrStale
		}
		make()
		return nil
	})
}

// failingLog has the disk of the journal fail, fill up or hang, or work again. As with the outbox, the bridge does not end before
// it has written what it had to.
func (w *world) failingLog(n int) {
	if w.variant == 0 {
		return
	}
	w.mu.Lock()
	ended := w.life.ended != nil || w.handover.underway > 0 // which needs a disk
	w.failed = w.failed || !ended
	disk := w.life.disks.log.FS
	w.mu.Unlock()
	if ended {
		return
	}
	w.restoreLog()
	switch n % 6 {
	case 0:
		disk.Fail(faultfs.Write, errDisk)
	case 1:
		disk.Fail(faultfs.Sync, errDisk)
	case 2:
		disk.Room(int64(20 * n))
	case 3:
		w.release = disk.Stall()
	case 4:
		w.pass(maxRetry + time.Second)
		outbox := w.life.disks.outbox
		outbox.mu.Lock()
		works := !outbox.fails && outbox.hangs == nil && w.s.Journal().Degraded() == nil
		outbox.mu.Unlock()
		w.mu.Lock()
		w.failed = w.failed && !works
		w.mu.Unlock()
	}
	synctest.Wait()
}

// maxRetry is how long the bridge waits at most before it tries again to write.
const maxRetry = 30 * time.Second

// restoreLog has the disk of the journal work again.
func (w *world) restoreLog() {
	if w.variant == 0 {
		return
	}
	disk := w.life.disks.log.FS
	disk.Fail(faultfs.Write, nil)
	disk.Fail(faultfs.Sync, nil)
	disk.Room(-1)
	if w.release != nil {
		w.release()
		w.release = nil
	}
}

// checkStored: the disk of the journal has what the reader has got, once it has worked for a while.
func (w *world) checkStored() {
	if w.variant == 0 {
		return
	}
	left := w.life.disks.clone()
	disk := newDisks(&left, func() {}, func() {})
	writer := w.newWriter(disk)
	defer writer.Close()
	epoch := uint64(1 + 1000*(w.restarts+1))
	log, err := w.openJournal(disk, epoch, writer)
	if err != nil {
		w.fail("the journal cannot be opened: %v", err)
		return
	}
	j := journal.New(journal.Config{Epoch: epoch, Log: log})
	stored := map[journal.ID]bool{}
	for rec := range w.durables(j) {
		stored[rec.ID] = true
	}
	if err := j.Close(context.Background()); err != nil {
		w.fail("the journal cannot be closed: %v", err)
	}
	for id, at := range w.reader.seen {
		if !stored[id] {
			w.fail("the event at %v is not on the disk", at)
		}
	}
}

// failing has the disk of the outbox fail, or work again. A bridge that ended meanwhile would lose prompts: from the first
// time on it does not end.
func (w *world) failing(fails bool) {
	if w.variant == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.ended != nil || w.handover.underway > 0 || !fails && !w.failed {
		return
	}
	w.note("the disk of the outbox fails: %v", fails)
	w.failed = true
	f := w.life.disks.outbox
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails = fails
}
