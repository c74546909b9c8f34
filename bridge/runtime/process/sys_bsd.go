//go:build unix && !linux

package process

import "syscall"

// keepsPid is false: Wait reaps at once. Between that and the note of it lies
// an instant in which a group signal could reach a new group of the same id.
const keepsPid = false

// sysProcAttr gives the child a group of its own. There is no parent-death
// signal here; the child notices the end of its input.
func sysProcAttr(u *User) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential(u)}
}

func awaitExit(int) {}
