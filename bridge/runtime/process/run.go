package process

import (
	"context"
	"io"
)

// maxOutput bounds the output that Run returns.
const maxOutput = 64 << 10

// Run starts a child with empty input, waits for its end and returns the beginning of its stdout. err is an error of
// the start; exit describes the end.
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
	// Reading a pipe fails only after it was closed, which happens after Done.
	return string(out), p.Exit(), readErr
}
