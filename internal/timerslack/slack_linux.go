package timerslack

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// The numbers of prctl(2).
const (
	setTimerSlack = 29
	getTimerSlack = 30
)

// Get returns the slack of the calling thread.
func Get() (time.Duration, error) {
	ns, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, getTimerSlack, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return time.Duration(ns), nil
}

// set sets the slack of the calling thread.
func set(d time.Duration) error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, uintptr(d), 0); errno != 0 {
		return errno
	}
	return nil
}

// Apply gives the program the slack of Wanted, as Raise does.
func Apply(args []string) { Raise(args, Wanted(args, os.Getenv(Variable))) }

// againEnv is in the environment of a program that has been executed again. Without it, a system that says that it has
// set the slack, and has not, would never get further.
const againEnv = Variable + "_SET"

// Raise gives the program a slack by executing it again with some arguments. It does nothing the second time, if the
// slack is 0, or if the program has inherited one that is not the kernel's. If the system refuses, the program goes on
// with its own.
func Raise(args []string, d time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if os.Getenv(againEnv) != "" {
		_ = os.Unsetenv(againEnv) // no other program is to see it
		return
	}
	if has, err := Get(); err != nil || has != Kernel || d == 0 || d == Kernel {
		return
	}
	self, err := os.Executable()
	if err != nil || set(d) != nil {
		return
	}
	_ = syscall.Exec(self, args, append(os.Environ(), againEnv+"=1")) // returns only if it fails
	_ = set(Kernel)
}

// Without calls start, which starts another program, on a thread with the kernel's slack. The other program inherits
// it.
func Without(start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if has, err := Get(); err == nil && has != Kernel && set(Kernel) == nil {
		defer func() { _ = set(has) }() // it was valid before
	}
	return start()
}
