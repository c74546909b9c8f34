package segment_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// cell opens a cell, whose text, if it says nothing, stands for its length.
func cell(t *testing.T, fs *faultfs.FS) *segment.Cell {
	t.Helper()
	c, err := segment.OpenCell(fs, "cell", true, func(text []byte) uint64 { return uint64(len(text)) })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func raised(t *testing.T, c *segment.Cell, to uint64) {
	t.Helper()
	if err := c.Raise(to); err != nil {
		t.Fatal(err)
	}
}

func TestCell(t *testing.T) {
	t.Parallel()
	fs := &faultfs.FS{}
	c := cell(t, fs)
	fs.Room(0)
	for i := range uint64(6) {
		raised(t, c, 10*i)
		if got := cell(t, fs).Get(); got != 10*i {
			t.Fatalf("%d is on disk, not %d", got, 10*i)
		}
	}
	if raised(t, c, 3); c.Get() != 50 {
		t.Errorf("raised to less it is %d", c.Get())
	}
	fs.Fail(faultfs.Sync, syscall.EIO)
	if err := c.Raise(60); !errors.Is(err, syscall.EIO) || c.Get() != 50 {
		t.Errorf("what is not on disk for good: %d, %v", c.Get(), err)
	}
}

// A crash at any byte of a write leaves the previous value or the new one.
func TestCellTorn(t *testing.T) {
	t.Parallel()
	for _, power := range []bool{false, true} {
		for crash := range 12 {
			fs := &faultfs.FS{}
			c := cell(t, fs)
			fs.CrashAfter(crash)
			last := uint64(0)
			for n := uint64(1); c.Raise(n<<40+n) == nil; n++ {
				last = n
			}
			got := cell(t, fs.Restart(power)).Get()
			if got != last<<40+last && got != (last+1)<<40+last+1 {
				t.Errorf("crash at %d, power %v: %x after %x", crash, power, got, last)
			}
		}
	}
}

// A file of another form, and one that cannot be made.
func TestCellForm(t *testing.T) {
	t.Parallel()
	fs := &faultfs.FS{}
	fs.Put("cell", []byte("1234567\n"))
	if c := cell(t, fs); c.Get() != 8 {
		t.Errorf("what the text says is %d", c.Get())
	}
	if raised(t, cell(t, fs), 9); cell(t, fs).Get() != 9 {
		t.Errorf("it is %d", cell(t, fs).Get())
	}
	fs = &faultfs.FS{}
	fs.Room(0)
	c, err := segment.OpenCell(fs, "cell", true, nil)
	if !errors.Is(err, syscall.ENOSPC) || c.Get() != 0 || c.Raise(1) == nil {
		t.Errorf("without room for its file it has %d, %v", c.Get(), err)
	}
}
