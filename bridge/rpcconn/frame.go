package rpcconn

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	readBufferSize = 64 << 10
	// maxHeader bounds a header block; normal ones have less than 30 bytes.
	maxHeader = 4 << 10
	// bigStart is the initial buffer for a frame that does not fit in the read buffer. It doubles as bytes arrive,
	// independently of the announced size.
	bigStart = 256 << 10
	// bigKeep is the largest buffer that returns to the pool.
	bigKeep = 4 << 20
)

var (
	headerEnd   = []byte("\r\n\r\n")
	lineEnd     = []byte("\r\n")
	lengthStart = []byte("Content-Length: ")
	lengthName  = []byte("Content-Length")
)

// bigBuffers are shared by all connections, because each rarely needs one.
var bigBuffers = sync.Pool{New: func() any { b := make([]byte, bigStart); return &b }}

// frameReader splits a byte stream into frames. A frame that fits in its buffer is returned without a copy.
type frameReader struct {
	src   io.Reader
	max   int
	buf   []byte
	r, w  int // unread bytes are buf[r:w]
	err   error
	big   *[]byte // holds the last frame, when it was a big one
	pause func()  // is called before each read of the source
}

func newFrameReader(src io.Reader, maxFrame int) *frameReader {
	return &frameReader{src: src, max: maxFrame, buf: make([]byte, readBufferSize), pause: func() {}}
}

// next returns the body of the next frame, valid until the next call. Its error is a *CloseError with the reason for
// the end of the stream.
func (f *frameReader) next() ([]byte, error) {
	f.release()
	n, err := f.header()
	if err != nil {
		return nil, err
	}
	if n > len(f.buf) {
		return f.bigBody(n)
	}
	if f.r+n > len(f.buf) {
		f.compact()
	}
	for f.w-f.r < n {
		if err := f.fill(); err != nil {
			return nil, streamEnd(err, true)
		}
	}
	body := f.buf[f.r : f.r+n : f.r+n]
	f.r += n
	return body, nil
}

// release returns the buffer of a big frame to the pool.
func (f *frameReader) release() {
	if f.big == nil {
		return
	}
	if cap(*f.big) <= bigKeep {
		bigBuffers.Put(f.big)
	}
	f.big = nil
}

// bigBody reads a frame that does not fit in the read buffer.
func (f *frameReader) bigBody(n int) ([]byte, error) {
	f.big = bigBuffers.Get().(*[]byte)
	buf := (*f.big)[:cap(*f.big)]
	have := copy(buf, f.buf[f.r:min(f.w, f.r+n)])
	f.r += have
	for have < n {
		if have == len(buf) {
			buf = append(buf, make([]byte, min(len(buf), n-len(buf)))...)
			*f.big = buf
		}
		m, err := f.read(buf[have:min(len(buf), n)])
		if err != nil {
			return nil, streamEnd(err, true)
		}
		have += m
	}
	return buf[:n], nil
}

// header reads a header block and returns the length in it.
func (f *frameReader) header() (int, error) {
	for {
		pending := f.buf[f.r:f.w]
		if end := bytes.Index(pending, headerEnd); end >= 0 && end <= maxHeader {
			f.r += end + len(headerEnd)
			return parseHeader(pending[:end], f.max)
		}
		if len(pending) >= maxHeader+len(headerEnd) {
			return 0, badFrame("header block over %d bytes", maxHeader)
		}
		if f.r+maxHeader+len(headerEnd) > len(f.buf) {
			f.compact()
		}
		if err := f.fill(); err != nil {
			return 0, streamEnd(err, f.w > f.r)
		}
	}
}

func (f *frameReader) compact() {
	f.w = copy(f.buf, f.buf[f.r:f.w])
	f.r = 0
}

// fill reads at least one byte into the buffer, or fails.
func (f *frameReader) fill() error {
	if f.r == f.w {
		f.r, f.w = 0, 0
	}
	n, err := f.read(f.buf[f.w:])
	f.w += n
	return err
}

// read returns at least one byte, or fails. If a source returns bytes together with an error, the error is kept for
// the next call.
func (f *frameReader) read(p []byte) (int, error) {
	f.pause()
	for range 100 {
		if f.err != nil {
			return 0, f.err
		}
		n, err := f.src.Read(p)
		f.err = err
		if n > 0 {
			return n, nil
		}
	}
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.ErrNoProgress
}

// parseHeader returns the length in a header block without its final blank line.
func parseHeader(block []byte, limit int) (int, error) {
	if value, ok := bytes.CutPrefix(block, lengthStart); ok && !bytes.Contains(value, lineEnd) {
		return parseLength(value, limit)
	}
	length := -1
	for line := range bytes.SplitSeq(block, lineEnd) {
		name, value, ok := bytes.Cut(line, []byte{':'})
		if !ok || len(name) == 0 {
			return 0, badFrame("header line without a name")
		}
		if !bytes.EqualFold(name, lengthName) {
			continue
		}
		n, err := parseLength(bytes.Trim(value, " \t"), limit)
		if err != nil {
			return 0, err
		}
		if length >= 0 && length != n {
			return 0, badFrame("two different lengths")
		}
		length = n
	}
	if length < 0 {
		return 0, badFrame("no Content-Length header")
	}
	return length, nil
}

// parseLength accepts digits only: no sign, no spaces, no overflow.
func parseLength(value []byte, limit int) (int, error) {
	if len(value) == 0 {
		return 0, badFrame("empty length")
	}
	n, tooLarge := 0, false
	for _, d := range value {
		if d < '0' || d > '9' {
			return 0, badFrame("length %.32q", value)
		}
		if !tooLarge {
			n = n*10 + int(d-'0')
			tooLarge = n > limit
		}
	}
	if tooLarge {
		return 0, &CloseError{Cause: ErrFrameTooLarge,
			Err: fmt.Errorf("%.32s bytes announced, %d allowed", value, limit)}
	}
	return n, nil
}

func badFrame(format string, args ...any) error {
	return &CloseError{Cause: ErrBadFrame, Err: fmt.Errorf(format, args...)}
}

// streamEnd converts the source's error to the reason for the end of the stream.
func streamEnd(err error, inFrame bool) error {
	switch {
	case !errors.Is(err, io.EOF):
		return &CloseError{Cause: ErrReadFailed, Err: err}
	case inFrame:
		return &CloseError{Cause: ErrTruncated, Err: io.ErrUnexpectedEOF}
	default:
		return &CloseError{Cause: ErrPeerClosed, Err: io.EOF}
	}
}
