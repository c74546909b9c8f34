//go:build !linux

package clibin

import (
	"fmt"
	"os"
	"time"
)

// identify returns the file system's metadata of a file and the time of its last change.
func identify(info os.FileInfo) (text string, changed time.Time) {
	return fmt.Sprintf("%v %d %d", info.Mode(), info.Size(), info.ModTime().UnixNano()), info.ModTime()
}
