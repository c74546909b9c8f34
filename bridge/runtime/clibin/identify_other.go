//go:build !linux

package clibin

import (
	"fmt"
	"os"
	"time"
)

// identify says what the file system knows of a file, and when it changed last.
func identify(info os.FileInfo) (text string, changed time.Time) {
	return fmt.Sprintf("%v %d %d", info.Mode(), info.Size(), info.ModTime().UnixNano()), info.ModTime()
}
