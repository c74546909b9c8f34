package archive

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash"
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

// bound ends with ErrLimit after a number of bytes.
type bound struct {
	from io.Reader
	left int64
}

// Read implements io.Reader.
func (b *bound) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("%w: it inflates to more than its manifest declares", ErrLimit)
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.from.Read(p)
	b.left -= int64(n)
	return n, err
}

// checked is the content of a part. It ends with an error if it is not the declared one.
type checked struct {
	from   io.Reader
	digest hash.Hash
	part   Part
}

// Read implements io.Reader.
func (c *checked) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	_, _ = c.digest.Write(p[:n])
	if err == nil {
		return n, nil
	}
	if err != io.EOF {
		return n, invalid(fmt.Sprintf("the content of %q", c.part.Name), err)
	}
	if hex.EncodeToString(c.digest.Sum(nil)) != c.part.SHA256 {
		return n, fmt.Errorf("%w: the digest of %q is wrong", ErrInvalid, c.part.Name)
	}
	return n, io.EOF
}
