package launch

import "syscall"

// sysProcAttr ends the server with the thread that started it.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
