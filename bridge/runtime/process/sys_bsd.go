//go:build unix && !linux

package process

import "syscall"

// keepsPid is false: Wait reaps at once. For an instant after it, a group signal could reach a new group with the
// same id.
const keepsPid = false

// sysProcAttr puts the child into its own process group. There is no parent-death signal here; the child notices the
// end of its input.
func sysProcAttr(u *User) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential(u)}
}

func awaitExit(int) {}
