package segment

import (
	"os"

	"golang.org/x/sys/unix"
)

// startSync begins to write a file of the operating system to disk.
func startSync(file File) {
	f, ok := file.(*os.File)
	if !ok {
		return
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	// The kernel also reports an error of the data to fsync.
	_ = conn.Control(func(fd uintptr) { _ = unix.SyncFileRange(int(fd), 0, 0, unix.SYNC_FILE_RANGE_WRITE) })
}
