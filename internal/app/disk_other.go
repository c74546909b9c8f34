//go:build !linux && !darwin

package app

// freeBytes does not know the disks of this system.
func freeBytes(string) (free uint64, known bool) { return 0, false }
