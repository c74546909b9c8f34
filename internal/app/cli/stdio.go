package cli

import (
	"io"
	"os"
)

// stdio is the program's end of a pipe to its parent process.
type stdio struct {
	io.ReadCloser
	io.Writer
}

// newStdio returns the connection on stdin and stdout. Reading stdin cannot be interrupted
// everywhere; where it cannot, a goroutine does it that ends with stdin or with the process.
func newStdio(in io.Reader, out io.Writer) *stdio {
	if file, ok := in.(*os.File); ok {
		if r := pollable(file, os.Stdout, os.Stderr); r != nil {
			return &stdio{r, out}
		}
	}
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		_ = w.CloseWithError(err) // nil is the end of the stream
	}()
	return &stdio{r, out}
}
