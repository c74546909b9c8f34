//go:build !linux

package timerslack

// Apply does nothing: only Linux has a timer slack.
func Apply([]string) {}

// Without calls start.
func Without(start func() error) error { return start() }
