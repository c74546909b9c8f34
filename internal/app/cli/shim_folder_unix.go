//go:build unix

package cli

import (
	"os"
	"syscall"
)

// isOurs reports whether a file belongs to the user of this process.
func isOurs(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
