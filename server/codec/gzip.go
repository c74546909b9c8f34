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

// init registers gzip in place of gRPC's gzip, which it uses.
func init() { //nolint:gochecknoinits // gRPC permits registration only during init
	encoding.RegisterCompressor(honest{
		Compressor: encoding.GetCompressor(gzip.Name),
		turns:      make(chan struct{}, max(minTurns, 2*runtime.GOMAXPROCS(0))),
	})
}

// honest is gzip with a check that messages are not longer than the length at their end, which is counted before they
// are decompressed. It limits parallel decompression, which uses the processor; a refused message may be decompressed
// before gRPC learns of the refusal.
type honest struct {
	encoding.Compressor
	// turns has a place for each message that may be decompressed in parallel.
	turns chan struct{}
}

// minTurns is the limit of parallel decompressions on the smallest machine.
const minTurns = 4

// minGzip is the minimum size of a gzip file.
const minGzip = 18

// errLonger reports a message that is longer than its stated length.
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

// bounded fails if there is more data than expected.
type bounded struct {
	io.Reader
	left int64
	// release ends the decompression's turn: at the end, at an error, or at Close.
	release func()
}

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

func (b *bounded) Close() error {
	b.release()
	if c, ok := b.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
