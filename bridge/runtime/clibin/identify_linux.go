package clibin

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// identify returns the file system's metadata of a file and the time of its last change. Only the kernel can set that
// time.
func identify(info os.FileInfo) (text string, changed time.Time) {
	text, changed = fmt.Sprintf("%v %d %d", info.Mode(), info.Size(), info.ModTime().UnixNano()), info.ModTime()
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		if at := time.Unix(stat.Ctim.Unix()); at.After(changed) {
			changed = at
		}
		text = fmt.Sprintf("%s %d %d %d.%d", text, stat.Dev, stat.Ino, stat.Ctim.Sec, stat.Ctim.Nsec)
	}
	return text, changed
}
