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

// writeNow writes as much to a non-blocking file as fits without waiting.
func writeNow(raw syscall.RawConn, b []byte) (int, error) {
	var written struct {
		n   int
		err error
	}
	err := raw.Write(func(fd uintptr) bool {
		written.n, written.err = syscall.Write(int(fd), b)
		return true // do not wait
	})
	err = cmp.Or(err, written.err)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		err = nil
	}
	return max(written.n, 0), err
}
