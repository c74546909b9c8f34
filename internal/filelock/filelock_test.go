package filelock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/filelock"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestTry(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, second := open(t, path), open(t, path)
	if err := filelock.Try(first); err != nil {
		t.Fatal(err)
	}
	if err := filelock.Try(second); !errors.Is(err, filelock.ErrHeld) {
		t.Errorf("the second lock gave %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := filelock.Try(second); err != nil {
		t.Errorf("after the first was closed: %v", err)
	}
	if err := filelock.Try(first); err == nil || errors.Is(err, filelock.ErrHeld) {
		t.Errorf("a closed file gave %v", err)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, second := open(t, path), open(t, path)
	if err := filelock.Wait(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := filelock.Wait(over, second); !errors.Is(err, filelock.ErrHeld) || !errors.Is(err, context.Canceled) {
		t.Errorf("waiting in vain gave %v", err)
	}
	got := make(chan error, 1)
	go func() { got <- filelock.Wait(t.Context(), second) }()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("waiting for one that was closed: %v", err)
	}
}
