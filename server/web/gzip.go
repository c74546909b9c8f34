package web

import (
	"io"
	"runtime"
	"sync"

	"connectrpc.com/connect/v2/connectgzip"
)

// minTurns is the limit of parallel decompressions on the smallest machine.
const minTurns = 4

// unpacker is gzip with a limit of parallel decompression. Connect decompresses a whole message before it is counted, so
// the limit bounds the memory of uncounted messages.
type unpacker struct {
	*connectgzip.Compressor
	// turns has a place for each message that may be decompressed in parallel.
	turns chan struct{}
}

func newUnpacker() *unpacker {
	return &unpacker{connectgzip.New(), make(chan struct{}, max(minTurns, 2*runtime.GOMAXPROCS(0)))}
}

// Decompress implements connect.Compressor.
func (u *unpacker) Decompress(src io.Reader) (io.ReadCloser, error) {
	u.turns <- struct{}{}
	r, err := u.Compressor.Decompress(src)
	if err != nil {
		<-u.turns
		return nil, err
	}
	return &turn{r, sync.OnceFunc(func() { <-u.turns })}, nil
}

// turn is a decompression in progress.
type turn struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (t *turn) Close() error {
	t.release()
	return t.ReadCloser.Close()
}
