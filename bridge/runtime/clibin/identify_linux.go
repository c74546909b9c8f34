package clibin

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// identify says what the file system knows of a file, and when it changed last. Nobody but the
// kernel sets the time of the change.
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
