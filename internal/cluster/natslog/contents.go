package natslog

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

const (
	// blockBytes and blockOps bound a block: the index has one for each, and reading begins at one.
	blockBytes = 64 << 10
	blockOps   = 64
)

// contents is what a log's messages amount to. It is pure: no lock, no clock, no requests.
type contents struct {
	epoch         uint64
	last, trimmed uint64 // numbers of entries
	mark          []byte
	blocks        []block // of the operations with entries, oldest first
	size          int64   // of the blocks
	appended      bool    // there was an append since the log is new
}

// block is a group of operations with entries that follow each other.
type block struct {
	first  uint64 // number of the first message
	end    uint64 // number of the last message
	last   uint64 // number of the last entry
	size   int64
	ops    int
	newest time.Time
}

// apply applies an operation. It returns errFormat if the body is damaged. at is when it was stored.
func (c *contents) apply(op *operation, at time.Time) error {
	switch op.kind {
	case kindReplace:
		*c = contents{}
		return c.add(op, at)
	case kindAppend:
		return c.add(op, at)
	case kindTrim:
		trimmed, mark, err := parseTrim(op.body)
		if err != nil {
			return err
		}
		c.epoch, c.appended = op.epoch, true
		c.trimmed, c.last = max(c.trimmed, trimmed), max(c.last, trimmed)
		c.mark = slices.Clone(mark)
		for len(c.blocks) > 0 && c.blocks[0].last <= c.trimmed {
			c.size -= c.blocks[0].size
			c.blocks = c.blocks[1:]
		}
	case kindDelete:
		*c = contents{}
	}
	return nil
}

// add applies an operation with entries.
func (c *contents) add(op *operation, at time.Time) error {
	last := c.last
	var mark []byte
	err := eachEntry(op.body, func(number uint64, data []byte) bool {
		if number == 0 {
			mark = data
		}
		last = max(last, number)
		return true
	})
	if err != nil {
		return err
	}
	if mark != nil {
		c.mark = slices.Clone(mark)
	}
	c.epoch, c.appended, c.last, c.size = op.epoch, true, last, c.size+op.size
	if n := len(c.blocks); n > 0 && c.blocks[n-1].size+op.size <= blockBytes && c.blocks[n-1].ops < blockOps {
		b := &c.blocks[n-1]
		b.end, b.last, b.size, b.ops, b.newest = op.last, last, b.size+op.size, b.ops+1, at
		return nil
	}
	c.blocks = append(c.blocks, block{first: op.first, end: op.last, last: last, size: op.size, ops: 1, newest: at})
	return nil
}

// messages returns the numbers of the messages with the entries after a number; false if there are none.
func (c *contents) messages(after uint64) (first, end uint64, _ bool) {
	i := sort.Search(len(c.blocks), func(i int) bool { return c.blocks[i].last > after })
	if i == len(c.blocks) {
		return 0, 0, false
	}
	return c.blocks[i].first, c.blocks[len(c.blocks)-1].end, true
}

// trim says what a trim removes: entries up to trimmed, and messages before keep. The last block stays. It returns
// false if there is nothing to remove.
func (c *contents) trim(maxBytes int64, before time.Time) (trimmed, keep uint64, _ bool) {
	size, n := c.size, 0
	for n < len(c.blocks)-1 && (maxBytes > 0 && size > maxBytes || c.blocks[n].newest.Before(before)) {
		size -= c.blocks[n].size
		n++
	}
	if n == 0 {
		return 0, 0, false
	}
	return max(c.trimmed, c.blocks[n-1].last), c.blocks[n].first, true
}

// bytes is the size of the log: 0 only if nothing was appended.
func (c *contents) bytes() int64 {
	if !c.appended {
		return 0
	}
	return cmp.Or(c.size, 1)
}
