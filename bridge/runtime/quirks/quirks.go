// Package quirks is the table of differences between versions of the Copilot CLI that no capability reports. All
// other code asks the table and never compares versions itself.
package quirks

// Quirk is a difference between versions of the CLI.
type Quirk struct {
	// Name identifies the quirk in logs and tests.
	Name string
	// From is the first version with the quirk; empty if the oldest supported one has it.
	From string
	// Until is the first version without the quirk; empty if the newest one has it.
	Until string
	// Why describes what the CLI does and how the bridge handles it.
	Why string
	// Test is the end-to-end test that fails on a version whose quirk is not handled.
	Test string
}

// In reports whether a version of the CLI has the quirk. It returns false for a version that cannot be parsed.
func (q Quirk) In(version string) bool {
	v, ok := ParseVersion(version)
	if !ok {
		return false
	}
	if from, ok := ParseVersion(q.From); ok && v.Compare(from) < 0 {
		return false
	}
	until, ok := ParseVersion(q.Until)
	return !ok || v.Compare(until) < 0
}
