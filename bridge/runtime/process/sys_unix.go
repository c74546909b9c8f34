//go:build unix

package process

import (
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
