package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"sync"
	"sync/atomic"
)

// cellSlot is where the second of a cell's two places is: they are written in turn, so that
// a crash leaves one of them.
const cellSlot = 4 << 10

// errNoCell reports a cell whose file could not be made.
var errNoCell = errors.New("the file that is written over is not there")

// Cell is a number on disk that only grows. Its file is as large as it will ever be:
// writing over a part of it needs no room, so that it works when the disk is full, too,
// unless the file system copies what is written over. Its methods may be called from any
// goroutine.
type Cell struct {
	fs   FS
	name string
	sync bool

	value atomic.Uint64

	mu    sync.Mutex // guards the file, and what follows
	slot  int
	ready bool // the file is as large as it will be
}

// OpenCell reads a cell, and makes one that there is not with zero in it. One that says
// nothing, which is an old or a damaged one, has what says of its text. With sync each
// value outlasts a crash of the machine. An error is of making the file: the cell can be
// read.
func OpenCell(fsys FS, name string, sync bool, says func(text []byte) uint64) (*Cell, error) {
	c := &Cell{fs: fsys, name: name, sync: sync}
	text, err := ReadFile(fsys, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	known := false
	for slot := range 2 {
		if value, ok := parseCell(text, slot); ok && (!known || value > c.Get()) {
			c.value.Store(value)
			c.slot, known = slot, true
		}
	}
	if c.ready = known && len(text) >= 2*cellSlot; c.ready {
		return c, nil
	}
	if !known && err == nil {
		c.value.Store(says(text))
	}
	full := make([]byte, 2*cellSlot)
	copy(full, cellText(c.Get()))
	if err := WriteFile(fsys, name, full, sync); err != nil {
		return c, fmt.Errorf("making %q: %w", name, err)
	}
	c.slot, c.ready = 0, true
	return c, nil
}

func cellText(value uint64) []byte {
	text := binary.LittleEndian.AppendUint64(nil, value)
	return binary.LittleEndian.AppendUint32(text, crc32.Checksum(text, castagnoli))
}

func parseCell(text []byte, slot int) (value uint64, ok bool) {
	const size = 8 + 4
	if len(text) < slot*cellSlot+size {
		return 0, false
	}
	text = text[slot*cellSlot:][:size]
	return binary.LittleEndian.Uint64(text), crc32.Checksum(text[:8], castagnoli) == binary.LittleEndian.Uint32(text[8:])
}

// Get is the number. It does not wait for a Raise.
func (c *Cell) Get() uint64 { return c.value.Load() }

// Raise makes the number at least n, for good. When it fails, and until it returns, the
// number may be on disk all the same.
func (c *Cell) Raise(n uint64) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Get() >= n {
		return nil
	}
	if !c.ready {
		return errNoCell
	}
	f, err := c.fs.Open(c.name, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	slot := 1 - c.slot
	if _, err := f.WriteAt(cellText(n), int64(slot)*cellSlot); err != nil {
		return fmt.Errorf("writing %q: %w", c.name, err)
	}
	if c.sync {
		if err := f.Sync(); err != nil {
			return fmt.Errorf("syncing %q: %w", c.name, err)
		}
	}
	c.slot = slot
	c.value.Store(n)
	return nil
}
