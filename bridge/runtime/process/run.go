package process

import (
	"context"
	"io"
)

// maxOutput bounds what Run keeps of the output of a child.
const maxOutput = 64 << 10

// Run starts a child with empty input, waits for its end and returns the first
// of what it wrote to stdout. The error is that of the start; how it ended is
// in Exit.
func Run(ctx context.Context, o Options) (stdout string, exit Exit, err error) {
	p, err := Start(ctx, o)
	if err != nil {
		return "", Exit{}, err
	}
	_ = p.CloseWrite()
	out, readErr := io.ReadAll(io.LimitReader(p, maxOutput))
	if readErr == nil {
		_, readErr = io.Copy(io.Discard, p)
	}
	<-p.Done()
	_ = p.Close()
	// Reading a pipe fails only when we close it, and nobody did before Done.
	return string(out), p.Exit(), readErr
}
