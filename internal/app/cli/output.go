package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"golang.org/x/term"
)

// output is stdout. The program reports its first error at the end, whether or not a command looks at it. It is safe for
// concurrent use.
type output struct {
	w io.Writer

	mu sync.Mutex
	// lineOpen says that a line has begun and has not ended.
	lineOpen bool
	failed   error
	// held is the beginning of a text that goes to a pager if it does not fit the terminal; nil for other texts.
	held          *bytes.Buffer
	width, height int
	start         func() *pager
	// pager is the pager that reads the text; nil for none.
	pager *pager
}

type outputError struct{ error }

func (e outputError) Error() string {
	cause := e.error
	if path, ok := errors.AsType[*fs.PathError](cause); ok {
		cause = path.Err // the path is that of a device
	}
	return fmt.Sprintf("write the output: %v", cause)
}

func (e outputError) Unwrap() error { return e.error }

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(text) == 0 {
		return 0, nil
	}
	o.lineOpen = text[len(text)-1] != '\n'
	if o.held != nil {
		o.held.Write(text)
		if o.fits() {
			return len(text), nil
		}
		return len(text), o.release()
	}
	return len(text), o.write(text)
}

// write writes to the pager or to stdout. The caller holds mu.
func (o *output) write(text []byte) error {
	var err error
	if o.pager != nil {
		_, err = o.pager.Write(text)
	} else {
		_, err = o.w.Write(text)
	}
	if err != nil && o.failed == nil {
		o.failed = outputError{err}
	}
	return o.failed
}

// endLine ends the line that has begun, if one has.
func (o *output) endLine() error {
	o.mu.Lock()
	isOpen := o.lineOpen
	o.mu.Unlock()
	if !isOpen {
		return nil
	}
	_, err := o.Write([]byte{'\n'})
	return err
}

// end returns the error with which a command ends, given its own. An error of stdout is the command's, unless the reader
// has gone or the command has failed for another reason.
func (o *output) end(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closePager()
	if o.failed != nil && (err == nil || errors.Is(err, errHelped) || errors.As(err, new(outputError))) {
		err = o.failed
	}
	if errors.Is(err, syscall.EPIPE) { // the reader has enough
		return nil
	}
	return err
}

// besides is stderr. What is written to it begins on a line of its own where stdout is the same terminal, pipe or file.
type besides struct {
	io.Writer
	stdout *output
}

// newBesides returns the stderr beside a stdout.
func newBesides(stderr *os.File, stdout *output) io.Writer {
	file := fileOf(stdout)
	if file == nil {
		return stderr
	}
	one, err := stderr.Stat()
	other, failed := file.Stat()
	if err != nil || failed != nil || !os.SameFile(one, other) {
		return stderr
	}
	return &besides{stderr, stdout}
}

func (b *besides) Write(text []byte) (int, error) {
	_ = b.stdout.endLine() // the end of the command has the error
	return b.Writer.Write(text)
}

// fileOf is the file behind a reader or a writer; nil if there is none.
func fileOf(of any) *os.File {
	switch w := of.(type) {
	case *os.File:
		return w
	case *output:
		return fileOf(w.w)
	case *besides:
		return fileOf(w.Writer)
	}
	return nil
}

// isTerminal reports whether a person reads or writes f.
func isTerminal(f any) bool {
	file := fileOf(f)
	return file != nil && term.IsTerminal(int(file.Fd()))
}

// terminalSize is the size of the terminal that w is; 0 if it is none.
func terminalSize(w any) (width, height int) {
	if file := fileOf(w); file != nil {
		width, height, _ = term.GetSize(int(file.Fd())) // 0 with an error
	}
	return width, height
}

// terminalWidth is the width of the terminal that w is; 0 if it is none.
func terminalWidth(w any) int {
	width, _ := terminalSize(w)
	return width
}
