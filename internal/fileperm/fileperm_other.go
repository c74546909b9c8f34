//go:build !unix

package fileperm

import "io/fs"

const supported = false

func foreign(fs.FileInfo) bool { return false }
