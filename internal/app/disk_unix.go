//go:build linux || darwin

package app

import "syscall"

// freeBytes returns how many bytes this user may still write to the disk of a path.
func freeBytes(path string) (free uint64, known bool) {
	var stat syscall.Statfs_t
	if syscall.Statfs(path, &stat) != nil {
		return 0, false
	}
	return stat.Bavail * uint64(stat.Bsize), true //nolint:gosec // it is not negative
}
