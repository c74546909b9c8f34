//go:build !linux

package launch

import "syscall"

// sysProcAttr is nil: the server ends with Stop only.
func sysProcAttr() *syscall.SysProcAttr { return nil }
