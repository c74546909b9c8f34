package clibin

import (
	"context"
	"fmt"
	"os"

	"github.com/copilot-grpc/copilot-grpc/internal/filelock"
)

// fileLock is a lock between processes that ends with its holder, however that
// ends. The file itself stays: removing it would let two holders in.
type fileLock struct{ file *os.File }

func acquire(ctx context.Context, path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Wait(ctx, f); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	return &fileLock{f}, nil
}

func (l *fileLock) release() { l.file.Close() }
