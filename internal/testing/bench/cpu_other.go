//go:build !linux

package bench

import (
	"errors"
	"time"
)

var errLinux = errors.New("the clock of another process is only read on Linux")

func cpuTime(int) (time.Duration, error) { return 0, errLinux }

func childOf(int) (int, error) {
	return 0, errors.New("the children of other processes can be listed on Linux only")
}
