//go:build unix

package fileperm

import (
	"io/fs"
	"os"
	"syscall"
)

const supported = true

// foreign reports whether a file belongs to neither this process's user nor root.
func foreign(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid()
}
