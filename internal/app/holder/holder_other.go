//go:build !linux

package holder

// OfPort finds no process on this system.
func OfPort(string) (Process, bool) { return Process{}, false }

// OfSocket finds no process on this system.
func OfSocket(string) (Process, bool) { return Process{}, false }

// OfDirectory finds no process on this system.
func OfDirectory(string) (Process, bool) { return Process{}, false }
