//go:build unix

package cli

import (
	"os"
	"syscall"
	"testing"
)

// TestStdinIsPolled checks that a Close of the shim's standard input ends a Read, and that other users of the pipe find
// it unchanged.
func TestStdinIsPolled(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	// As the process finds it: blocking, and unknown to the runtime.
	fd, err := syscall.Dup(int(r.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	in := os.NewFile(uintptr(fd), "stdin")
	defer in.Close()
	s := newStdio(in, nil)
	if _, ok := s.ReadCloser.(*polled); !ok {
		t.Fatalf("a pipe is read by way of %T", s.ReadCloser)
	}
	if _, err := w.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if n, err := s.Read(b); err != nil || string(b[:n]) != "hello" {
		t.Fatalf("read %q, %v", b[:n], err)
	}
	ended := make(chan error)
	go func() {
		_, err := s.Read(b)
		ended <- err
	}()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a Read ended without an error")
	}
	if !blocking(t, in) {
		t.Error("the pipe does not block any more for whoever has it too")
	}
}

// TestSharedFilesAreNotPolled: what is standard output too, and what is no pipe, is read as
// it is.
func TestSharedFilesAreNotPolled(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if pollable(r, r) != nil {
		t.Error("a pipe that is used for something else as well is polled")
	}
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if pollable(file) != nil {
		t.Error("a file of a disk is polled")
	}
}

func blocking(t *testing.T, f *os.File) bool {
	t.Helper()
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_GETFL, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	return flags&syscall.O_NONBLOCK == 0
}
