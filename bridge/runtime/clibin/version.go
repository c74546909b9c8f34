package clibin

import "github.com/copilot-grpc/copilot-grpc/bridge/runtime/quirks"

const (
	// PinnedVersion is the CLI version that this bridge is built for and installs.
	PinnedVersion = "1.0.102"
	// OldestVersion is the oldest supported CLI version.
	OldestVersion = "1.0.81"
)

// Support tells whether this bridge supports a CLI version.
type Support int

const (
	// Unsupported versions are refused: too old, or not a valid version.
	Unsupported Support = iota
	// Supported versions are between the oldest and the pinned one.
	Supported
	// Newer versions are accepted with a warning.
	Newer
)

// SupportOf returns the support of a version that the CLI reported.
func SupportOf(version string) Support {
	v, ok := quirks.ParseVersion(version)
	oldest, _ := quirks.ParseVersion(OldestVersion)
	pinned, _ := quirks.ParseVersion(PinnedVersion)
	switch {
	case !ok || v.Compare(oldest) < 0:
		return Unsupported
	case v.Compare(pinned) > 0:
		return Newer
	}
	return Supported
}
