//go:build !linux

package timerslack

import "time"

// Apply does nothing: only Linux has a timer slack.
func Apply([]string) {}

// Raise does nothing.
func Raise([]string, time.Duration) {}

// Without calls start.
func Without(start func() error) error { return start() }
