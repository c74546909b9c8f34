//go:build unix

package process

import (
	"cmp"
	"errors"
	"os"
	"syscall"
)

func sendGroup(p *os.Process, s strength) {
	sig := syscall.SIGTERM
	if s == kill {
		sig = syscall.SIGKILL
	}
	// An error means that the group has no processes left, or that they changed their user. Both cannot be handled.
	_ = syscall.Kill(-p.Pid, sig)
}

func signalOf(state *os.ProcessState) string {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal().String()
	}
	return ""
}

// credential returns the user of a child, without supplementary groups; nil means the current user.
func credential(u *User) *syscall.Credential {
	if u == nil {
		return nil
	}
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: []uint32{}}
}

// atOnce writes to a non-blocking file without waiting. It keeps the function that RawConn calls, so that a write
// allocates nothing.
type atOnce struct {
	raw  syscall.RawConn
	call func(fd uintptr) (done bool)

	bytes []byte // of the write that is being made
	n     int
	err   error
}

func newAtOnce(file *os.File) (*atOnce, error) {
	raw, err := file.SyscallConn()
	w := &atOnce{raw: raw}
	w.call = func(fd uintptr) bool {
		w.n, w.err = syscall.Write(int(fd), w.bytes)
		return true // do not wait
	}
	return w, err
}

// write writes as much as fits.
func (w *atOnce) write(b []byte) (int, error) {
	w.bytes, w.n, w.err = b, 0, nil
	err := cmp.Or(w.raw.Write(w.call), w.err)
	w.bytes = nil
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		err = nil
	}
	return max(w.n, 0), err
}
