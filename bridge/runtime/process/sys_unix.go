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
	// An error means that no process of the group is left, or that those that
	// are changed their user: nothing can be done about either.
	_ = syscall.Kill(-p.Pid, sig)
}

func signalOf(state *os.ProcessState) string {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal().String()
	}
	return ""
}

// credential is the user of a child, with no groups but its own; nil leaves it ours.
func credential(u *User) *syscall.Credential {
	if u == nil {
		return nil
	}
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: []uint32{}}
}
