package archive

import (
	"context"
	"fmt"
	"io"
)

// source is the reader that an archive comes from. It remembers its error.
type source struct {
	ctx  context.Context
	from io.Reader
	err  error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (n int, err error) {
	if err = s.ctx.Err(); err == nil {
		n, err = s.from.Read(p)
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// bound returns ErrLimit after a number of bytes, unless the data end there.
type bound struct {
	from io.Reader
	left int64
}

// Read implements io.Reader.
func (b *bound) Read(p []byte) (int, error) {
	if b.left <= 0 {
		if n, err := b.from.Read(p[:min(len(p), 1)]); n == 0 {
			return 0, err
		}
		return 0, fmt.Errorf("%w: its headers or its padding are too long", ErrLimit)
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.from.Read(p)
	b.left -= int64(n)
	return n, err
}

// content is the content of an entry. Its errors say that the archive is at fault.
type content struct {
	from io.Reader
	name string
}

// Read implements io.Reader.
func (c *content) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if err != nil && err != io.EOF {
		err = invalid(fmt.Sprintf("the content of %q", c.name), err)
	}
	return n, err
}
