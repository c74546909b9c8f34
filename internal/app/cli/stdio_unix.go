//go:build unix

package cli

import (
	"os"
	"syscall"
)

// polled is a file that the runtime waits for as for any connection: without a thread that
// blocks, nor a goroutine that hands over what it read, and a Close ends a Read.
type polled struct {
	*os.File
	original *os.File
}

// Close implements io.Closer. Other holders of the file find it unchanged.
func (p *polled) Close() error {
	err := p.File.Close()
	_ = syscall.SetNonblock(int(p.original.Fd()), false) // as far as that can still be done
	return err
}

// pollable returns the file as one that is polled, nil if that cannot be. A terminal is shared
// with others, who would not expect it, and so is what is one of apart as well.
func pollable(f *os.File, apart ...*os.File) *polled {
	info, err := f.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return nil
	}
	for _, other := range apart {
		if o, err := other.Stat(); err == nil && os.SameFile(info, o) {
			return nil
		}
	}
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return nil
	}
	syscall.CloseOnExec(fd)
	if syscall.SetNonblock(fd, true) != nil {
		_ = syscall.Close(fd)
		return nil
	}
	return &polled{os.NewFile(uintptr(fd), f.Name()), f}
}
