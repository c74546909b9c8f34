package archive

import (
	"context"
	"fmt"
	"io"
)

// source remembers an error of the reader that an archive comes from. It has no more data than its
// caller asks for, because it is an io.ByteReader.
type source struct {
	ctx  context.Context
	from io.Reader
	err  error

	buffer     [32 << 10]byte
	start, end int
}

// fill reads the next bytes if there are none.
func (s *source) fill() error {
	for s.start == s.end {
		if err := s.ctx.Err(); err != nil {
			s.err = err
			return err
		}
		n, err := s.from.Read(s.buffer[:])
		s.start, s.end = 0, n
		if n == 0 && err != nil {
			if err != io.EOF {
				s.err = err
			}
			return err
		}
	}
	return nil
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := s.fill(); err != nil {
		return 0, err
	}
	n := copy(p, s.buffer[s.start:s.end])
	s.start += n
	return n, nil
}

// ReadByte implements io.ByteReader.
func (s *source) ReadByte() (byte, error) {
	if err := s.fill(); err != nil {
		return 0, err
	}
	s.start++
	return s.buffer[s.start-1], nil
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
