//go:build !linux

package cluster

import "time"

var started = time.Now()

// uptime returns the time since the process started. It never goes back. The time in which the machine was suspended
// may be missing.
func uptime() time.Duration { return time.Since(started) }
