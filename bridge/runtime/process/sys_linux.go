package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// keepsPid is true: awaitExit leaves the child a zombie, so that its pid and group id stay reserved until Wait.
const keepsPid = true

// sysProcAttr puts the child into its own process group and ends it with its parent, by SIGTERM: the CLI then ends
// its shells and removes its lock files in about 50 ms, which it does not after SIGKILL. SweepAbandoned finds a child
// that ignores SIGTERM and the end of its input.
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
