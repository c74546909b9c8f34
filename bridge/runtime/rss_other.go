//go:build !linux

package runtime

// residentBytes returns 0: the value is not available here.
func residentBytes(int) int64 { return 0 }
