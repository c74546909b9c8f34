package corpus

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
)

// DirEnv names the folder that end-to-end tests record their traffic into, and
// that the replay reads. Unset: nothing is recorded.
const DirEnv = "COPILOT_GRPC_TEST_CORPUS"

// The files of a runtime: what the bridge wrote to the CLI, and what it read.
const (
	toCLI   = ".to"
	fromCLI = ".from"
)

// DefaultLimit is how many bytes a Recorder writes at most.
const DefaultLimit = 256 << 20

// Recorder is a runtime.Runner that records the traffic of the runtimes of another one. Traffic above its limit, or
// that cannot be written, is not recorded; the runtimes never notice.
type Recorder struct {
	next runtime.Runner
	dir  string
	left atomic.Int64
}

// Record returns a Recorder that writes up to limit bytes into dir, which must exist.
func Record(next runtime.Runner, dir string, limit int64) *Recorder {
	r := &Recorder{next: next, dir: dir}
	r.left.Store(limit)
	return r
}

// Start starts a runtime and records it.
func (r *Recorder) Start(ctx context.Context, spec runtime.Spec) (runtime.Transport, error) {
	t, err := r.next.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	tapes, err := r.tapes()
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	one := &recorded{t, &recordedStream{t, tapes}}
	if many, ok := t.(multiplexed); ok {
		return &recordedMany{recorded: one, many: many, recorder: r}, nil
	}
	return one, nil
}

// multiplexed is a Transport whose CLI takes connections beside the first: a runtime looks
// for the method, so that a recorded one must have it exactly when the other has.
type multiplexed interface {
	Another(ctx context.Context) (io.ReadWriteCloser, error)
}

// Diagnose looks at what is recorded, not at the recording.
func (r *Recorder) Diagnose(ctx context.Context) []runtime.Finding { return r.next.Diagnose(ctx) }

// tapes makes the files of a connection.
func (r *Recorder) tapes() (tapes, error) {
	to, err := r.create(toCLI, "")
	if err != nil {
		return tapes{}, err
	}
	from, err := r.create(fromCLI, to.base)
	if err != nil {
		return tapes{}, errors.Join(err, to.close())
	}
	return tapes{to: to, from: from}, nil
}

// create makes a file of a new runtime, or the second one of the runtime named base.
func (r *Recorder) create(suffix, base string) (*tape, error) {
	var file *os.File
	var err error
	if base == "" {
		// Several test processes may record into one folder.
		file, err = os.CreateTemp(r.dir, "*"+suffix)
	} else {
		file, err = os.OpenFile(base+suffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	name := file.Name()
	return &tape{
		base: name[:len(name)-len(filepath.Ext(name))], left: &r.left,
		file: file, buf: bufio.NewWriterSize(file, 64<<10),
	}, nil
}

// tapes are both directions of a connection.
type tapes struct{ to, from *tape }

// read copies what was read.
func (t tapes) read(p []byte, err error) {
	t.from.write(p)
	if err != nil {
		_ = t.from.close() // nothing follows
	}
}

func (t tapes) close() error { return errors.Join(t.to.close(), t.from.close()) }

// recordedStream is a connection whose bytes are copied.
type recordedStream struct {
	io.ReadWriteCloser
	tapes
}

// Read implements io.Reader.
func (r *recordedStream) Read(p []byte) (int, error) {
	n, err := r.ReadWriteCloser.Read(p)
	r.read(p[:n], err)
	return n, err
}

// Write implements io.Writer.
func (r *recordedStream) Write(p []byte) (int, error) {
	n, err := r.ReadWriteCloser.Write(p)
	r.to.write(p[:n])
	return n, err
}

// CloseWrite closes half of the stream, if it can be closed by halves.
func (r *recordedStream) CloseWrite() error {
	if half, ok := r.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close implements io.Closer.
func (r *recordedStream) Close() error { return errors.Join(r.ReadWriteCloser.Close(), r.close()) }

// transport is what a runtime.Transport has besides its stream.
type transport interface {
	Peer() runtime.Peer
	Done() <-chan struct{}
	Exit() process.Exit
	StderrTail() string
}

// recorded is a Transport whose bytes are copied.
type recorded struct {
	transport
	*recordedStream
}

// recordedMany is a Transport that gives further connections, which are recorded as well, each in separate files.
type recordedMany struct {
	*recorded
	many     multiplexed
	recorder *Recorder
}

// Another opens a further connection and records it.
func (r *recordedMany) Another(ctx context.Context) (io.ReadWriteCloser, error) {
	rwc, err := r.many.Another(ctx)
	if err != nil {
		return nil, err
	}
	tapes, err := r.recorder.tapes()
	if err != nil {
		return nil, errors.Join(err, rwc.Close())
	}
	return &recordedStream{ReadWriteCloser: rwc, tapes: tapes}, nil
}

// tape is one direction of one runtime.
type tape struct {
	base string
	left *atomic.Int64 // shared by all tapes of a Recorder

	mu   sync.Mutex
	file *os.File // nil once it is closed or full
	buf  *bufio.Writer
}

// write appends bytes. A tape that is full ends there, perhaps within a frame.
func (t *tape) write(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil || len(p) == 0 {
		return
	}
	left := t.left.Add(-int64(len(p)))
	if _, err := t.buf.Write(p); err != nil || left <= 0 {
		_ = t.end() // a shorter corpus is no reason to fail the test that makes it
	}
}

func (t *tape) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.end()
}

func (t *tape) end() error {
	if t.file == nil {
		return nil
	}
	err := errors.Join(t.buf.Flush(), t.file.Close())
	t.file, t.buf = nil, nil
	return err
}
