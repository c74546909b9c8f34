//go:build !unix

package cli

import "os"

// pollable is for systems where a file cannot be waited for without a thread.
func pollable(*os.File, ...*os.File) *os.File { return nil }
