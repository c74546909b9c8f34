package fileperm

import "syscall"

// stReadOnly is ST_RDONLY of statfs(2).
const stReadOnly = 1

// readOnly reports whether a path is on a file system that is mounted read-only, so that its write bits have no
// effect. Volumes of Kubernetes config maps are an example.
func readOnly(path string) bool {
	var stat syscall.Statfs_t
	return syscall.Statfs(path, &stat) == nil && stat.Flags&stReadOnly != 0
}
