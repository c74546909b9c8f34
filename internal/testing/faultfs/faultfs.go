// Package faultfs is a file system in memory that fails on request, forgets data that was not synced, and stops in the
// middle of a write, as machines and disks do.
package faultfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing/fstest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
)

// ErrCrashed reports that the process that used the file system is dead.
var ErrCrashed = errors.New("the machine has crashed")

// Op is a call that changes or reads something.
type Op string

// The calls that can fail.
const (
	Write  Op = "write"
	Sync   Op = "sync"
	Rename Op = "rename"
	Remove Op = "remove"
	Open   Op = "open"
	Read   Op = "read"
)

// FS is the file system. The zero value is empty.
type FS struct {
	mu      sync.Mutex
	files   map[string]*content
	dirs    map[string]bool
	fail    map[Op]error
	failing string        // writes and syncs fail in files whose names begin so
	gate    chan struct{} // writes wait for it
	gated   string        // in files whose names begin so
	pace    int           // bytes a second that are written; 0 without limit
	room    int64         // bytes that may still be written; -1 without limit
	limited bool
	steps   int // changes until the crash; counted down if crashing
	crash   bool
	dead    bool
}

type content struct {
	data   []byte
	synced []byte
	// After a sync has failed, the system does not try again to write what it could not: a later sync succeeds without
	// the bytes from lostFrom to lostTo.
	lostFrom, lostTo int
}

// sync writes what was not lost.
func (c *content) sync() {
	before := c.synced
	c.synced = slices.Clone(c.data)
	if from, to := min(c.lostFrom, len(c.data)), min(c.lostTo, len(c.data)); from < to {
		clear(c.synced[from:to])
		if from < len(before) {
			copy(c.synced[from:to], before[from:])
		}
	}
}

// write notes that a range has been written, which the next sync does.
func (c *content) write(from, to int) {
	if from <= c.lostFrom {
		c.lostFrom = max(c.lostFrom, to)
	} else if to >= c.lostTo {
		c.lostTo = min(c.lostTo, from)
	}
	c.lostTo = max(c.lostTo, c.lostFrom)
}

// lose notes that a sync has failed.
func (c *content) lose() {
	if c.lostFrom == c.lostTo {
		c.lostFrom = 0
		for c.lostFrom < min(len(c.synced), len(c.data)) && c.synced[c.lostFrom] == c.data[c.lostFrom] {
			c.lostFrom++
		}
	}
	c.lostTo = len(c.data)
}

// Fail makes calls of a kind fail; nil ends that.
func (f *FS) Fail(op Op, err error) { f.FailIn("", op, err) }

// FailIn is Fail; it spares writes and syncs of files whose names do not begin with a text.
func (f *FS) FailIn(prefix string, op Op, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail == nil {
		f.fail = map[Op]error{}
	}
	f.fail[op], f.failing = err, prefix
}

// Room lets files grow by so many more bytes before the disk is full; negative is no limit.
func (f *FS) Room(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.room, f.limited = bytes, bytes >= 0
}

// Throttle makes writes take their time: so many bytes a second; 0 is no limit.
func (f *FS) Throttle(bytesPerSecond int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pace = bytesPerSecond
}

// Stall makes writes wait until the returned function is called.
func (f *FS) Stall() (release func()) { return f.StallIn("") }

// StallIn is Stall for files whose names begin with a text.
func (f *FS) StallIn(prefix string) (release func()) {
	gate := make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate, f.gated = gate, prefix
	return sync.OnceFunc(func() {
		f.mu.Lock()
		f.gate = nil
		f.mu.Unlock()
		close(gate)
	})
}

// CrashAfter makes the process die at a change: the one after n more is done by half, and
// every call after it fails.
func (f *FS) CrashAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps, f.crash = n, true
}

// Restart returns the file system as the next process finds it. With power, what was not
// synced is gone.
func (f *FS) Restart(power bool) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := &FS{files: map[string]*content{}, dirs: map[string]bool{}}
	for name, c := range f.files {
		data := c.data
		if power {
			data = c.synced
		}
		next.files[name] = &content{data: slices.Clone(data), synced: slices.Clone(c.synced)}
	}
	for name := range f.dirs {
		next.dirs[name] = true
	}
	return next
}

// Tear is Restart after a crash of the machine that had written a part of what was not synced. written decides for each
// block whether it has the newest bytes, or the synced ones, or zeros where there were none.
func (f *FS) Tear(block int, written func() bool) *FS {
	next := f.Restart(true)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(next.files)) {
		torn := next.files[name]
		newest := torn.data // of a file that is gone since
		if c := f.files[name]; c != nil {
			newest = c.data
		}
		if written() { // its size
			torn.data = append(torn.data, make([]byte, max(len(newest)-len(torn.data), 0))...)[:len(newest)]
		}
		for at := 0; at < min(len(torn.data), len(newest)); at += block {
			if written() {
				copy(torn.data[at:min(at+block, len(torn.data))], newest[at:])
			}
		}
		torn.synced = slices.Clone(torn.data)
	}
	return next
}

// Names lists the files.
func (f *FS) Names() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Content returns a file's bytes, which the caller may change in place.
func (f *FS) Content(name string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.files[name]; c != nil {
		return c.data
	}
	return nil
}

// Put makes a file.
func (f *FS) Put(name string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files == nil {
		f.files = map[string]*content{}
	}
	f.files[name] = &content{data: data, synced: data}
}

// step counts a change, and reports how much of it is done: half of it is -1. The caller
// holds mu.
func (f *FS) step(op Op) (half bool, err error) { return f.stepIn(f.failing, op) }

// stepIn is step for a file.
func (f *FS) stepIn(name string, op Op) (half bool, err error) {
	if err := f.checkIn(name, op); err != nil {
		return false, err
	}
	if f.crash {
		if f.steps--; f.steps < 0 {
			f.dead = true
			return true, ErrCrashed
		}
	}
	return false, nil
}

func (f *FS) check(op Op) error { return f.checkIn(f.failing, op) }

// checkIn is check for a file.
func (f *FS) checkIn(name string, op Op) error {
	if f.dead {
		return ErrCrashed
	}
	if !strings.HasPrefix(name, f.failing) {
		return nil
	}
	return f.fail[op]
}

// Open implements segment.FS.
func (f *FS) Open(name string, write bool) (segment.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.check(Open); err != nil {
		return nil, err
	}
	c := f.files[name]
	if c == nil {
		if !write {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		if _, err := f.step(Open); err != nil {
			return nil, err
		}
		if f.files == nil {
			f.files = map[string]*content{}
		}
		c = &content{}
		f.files[name] = c
	}
	return &file{fs: f, c: c, name: name}, nil
}

// ReadDir implements segment.FS.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.check(Read); err != nil {
		return nil, err
	}
	if !f.dirs[name] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	inside := fstest.MapFS{}
	for path := range f.files {
		if filepath.Dir(path) == name {
			inside[filepath.Base(path)] = &fstest.MapFile{Mode: 0o600}
		}
	}
	for path := range f.dirs {
		if filepath.Dir(path) == name && path != name {
			inside[filepath.Base(path)] = &fstest.MapFile{Mode: fs.ModeDir | 0o700}
		}
	}
	return inside.ReadDir(".")
}

// Size implements segment.FS.
func (f *FS) Size(name string) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.files[name]
	if c == nil {
		return 0, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return int64(len(c.data)), f.check(Read)
}

// MkdirAll implements segment.FS.
func (f *FS) MkdirAll(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dirs == nil {
		f.dirs = map[string]bool{}
	}
	for dir := name; !f.dirs[dir]; dir = filepath.Dir(dir) {
		f.dirs[dir] = true
	}
	return f.check(Open)
}

// Rename implements segment.FS.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.step(Rename); err != nil {
		return err
	}
	if f.dirs[from] {
		f.renameDir(from, to)
		return nil
	}
	c := f.files[from]
	if c == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	delete(f.files, from)
	f.files[to] = c
	return nil
}

// renameDir moves a directory with all that is in it. The caller holds mu.
func (f *FS) renameDir(from, to string) {
	inside := from + string(filepath.Separator)
	for path, c := range maps.Clone(f.files) {
		if rest, ok := strings.CutPrefix(path, inside); ok {
			delete(f.files, path)
			f.files[filepath.Join(to, rest)] = c
		}
	}
	for path := range maps.Clone(f.dirs) {
		if path == from || strings.HasPrefix(path, inside) {
			delete(f.dirs, path)
			f.dirs[to+strings.TrimPrefix(path, from)] = true
		}
	}
}

// RemoveAll implements segment.FS.
func (f *FS) RemoveAll(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.step(Remove); err != nil {
		return err
	}
	for path := range f.files {
		if path == name || strings.HasPrefix(path, name+string(filepath.Separator)) {
			delete(f.files, path)
		}
	}
	for path := range f.dirs {
		if path == name || strings.HasPrefix(path, name+string(filepath.Separator)) {
			delete(f.dirs, path)
		}
	}
	return nil
}

// SyncDir implements segment.FS.
func (f *FS) SyncDir(string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.check(Sync)
}

// file is an open file.
type file struct {
	fs   *FS
	c    *content
	name string
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.check(Read); err != nil {
		return 0, err
	}
	if off >= int64(len(f.c.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.c.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	gate, here, pace := f.fs.gate, strings.HasPrefix(f.name, f.fs.gated), f.fs.pace
	f.fs.mu.Unlock()
	if pace > 0 {
		time.Sleep(time.Duration(len(p)) * time.Second / time.Duration(pace))
	}
	if gate != nil && here {
		<-gate
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	half, err := f.fs.stepIn(f.name, Write)
	if half {
		f.put(p[:len(p)/2], off)
	}
	if err != nil {
		return 0, err
	}
	if grows := max(off+int64(len(p))-int64(len(f.c.data)), 0); f.fs.limited {
		if grows > f.fs.room {
			n := len(p) - int(grows-f.fs.room)
			f.fs.room = 0
			f.put(p[:max(n, 0)], off)
			return max(n, 0), syscall.ENOSPC
		}
		f.fs.room -= grows
	}
	f.put(p, off)
	return len(p), nil
}

func (f *file) put(p []byte, off int64) {
	if need := int(off) + len(p); need > len(f.c.data) {
		f.c.data = append(f.c.data, make([]byte, need-len(f.c.data))...)
	}
	copy(f.c.data[off:], p)
	f.c.write(int(off), int(off)+len(p))
}

func (f *file) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if _, err := f.fs.stepIn(f.name, Write); err != nil {
		return err
	}
	if n := int(size) - len(f.c.data); n > 0 {
		f.c.data = append(f.c.data, make([]byte, n)...)
	}
	f.c.data = f.c.data[:size]
	f.c.lostTo = max(min(f.c.lostTo, int(size)), f.c.lostFrom)
	return nil
}

func (f *file) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.checkIn(f.name, Sync); err != nil {
		f.c.lose()
		return err
	}
	f.c.sync()
	return nil
}

func (f *file) Close() error { return nil }
