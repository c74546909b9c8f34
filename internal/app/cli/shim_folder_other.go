//go:build !unix

package cli

import "os"

// isOurs is for systems whose folders for temporary files are a user's own.
func isOurs(os.FileInfo) bool { return true }
