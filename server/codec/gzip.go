package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
)

// init registers gzip in place of gRPC's own, which it uses.
func init() { //nolint:gochecknoinits // gRPC takes compressors at no other time
	encoding.RegisterCompressor(honest{
		Compressor: encoding.GetCompressor(gzip.Name), turns: make(chan struct{}, max(minTurns, 2*runtime.GOMAXPROCS(0))),
	})
}

// honest is gzip whose messages are not longer than they say at their end: by that length they
// are counted before they are unpacked. It unpacks few at once: that takes the processor and not
// time, and what is refused may be unpacked before gRPC hears of that.
type honest struct {
	encoding.Compressor
	// turns has a place for each that may be unpacked at once.
	turns chan struct{}
}

// minTurns is how many messages may be unpacked at once on the smallest machine.
const minTurns = 4

// minGzip is the least that a gzip file has.
const minGzip = 18

// errLonger refuses a message that is longer than it says.
var errLonger = errors.New("gzip: the message is longer than its trailer says")

// Decompress implements encoding.Compressor.
func (h honest) Decompress(r io.Reader) (io.Reader, error) {
	packed, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if len(packed) < minGzip {
		return nil, io.ErrUnexpectedEOF
	}
	h.turns <- struct{}{}
	release := sync.OnceFunc(func() { <-h.turns })
	unpacked, err := h.Compressor.Decompress(bytes.NewReader(packed))
	if err != nil {
		release()
		return nil, err
	}
	return &bounded{unpacked, int64(binary.LittleEndian.Uint32(packed[len(packed)-4:])), release}, nil
}

// bounded fails when more comes than is to come.
type bounded struct {
	io.Reader
	left int64
	// release gives the turn back: at the end, at an error, or when it is closed.
	release func()
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		n, err = 0, errLonger
	}
	if err != nil {
		b.release()
	}
	return n, err
}

// Close implements io.Closer.
func (b *bounded) Close() error {
	b.release()
	if c, ok := b.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
