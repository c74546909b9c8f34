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

// cellSlot is the offset of the second of a cell's two slots. They are written in turn, so that one of them survives
// a crash.
const cellSlot = 4 << 10

// errNoCell reports a cell whose file could not be made.
var errNoCell = errors.New("the cell's file does not exist")

// Cell is a number on disk that only grows. Its file has its final size from the start: overwriting needs no space,
// so a cell can be written on a full disk, unless the file system copies overwritten data. It is safe for concurrent
// use.
type Cell struct {
	fs   FS
	name string
	sync bool

	value atomic.Uint64

	mu    sync.Mutex // guards the file, and what follows
	slot  int
	ready bool // the file is as large as it will be
}

// OpenCell opens a cell, or creates one with the value zero. For an old or damaged cell says determines the value
// from the file's text. With sync each value survives a crash of the machine. If creating the file fails, OpenCell
// returns the error and a cell that can be read.
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
	return binary.LittleEndian.Uint64(text), crc32.Checksum(text[:8],
		castagnoli) == binary.LittleEndian.Uint32(text[8:])
}

// Get returns the number; that of a nil cell is 0. It does not wait for a Raise.
func (c *Cell) Get() uint64 {
	if c == nil {
		return 0
	}
	return c.value.Load()
}

// Raise makes the number at least n, permanently. Until it returns, and if it fails, the number may be on disk
// already.
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
