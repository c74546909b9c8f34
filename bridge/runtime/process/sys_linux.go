package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// keepsPid says that awaitExit leaves the child a zombie, so that its pid and
// group id stay reserved until Wait.
const keepsPid = true

// sysProcAttr gives the child a group of its own and ends it with its parent.
// SIGTERM, not SIGKILL: given it, the CLI ends its shells and removes its lock
// files in some 50 ms; killed, it leaves both. One that ignores SIGTERM and the
// end of its input is found by SweepAbandoned.
func sysProcAttr(u *User) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM, Credential: credential(u)}
}

// awaitExit returns when the process has exited, without reaping it.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
