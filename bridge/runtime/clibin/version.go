package clibin

import (
	"cmp"
	"strconv"
	"strings"
)

const (
	// PinnedVersion is the CLI this bridge is built for and installs.
	PinnedVersion = "1.0.102"
	// OldestVersion is the oldest CLI it works with.
	OldestVersion = "1.0.81"
)

// Version is a CLI version: three numbers and an optional pre-release part.
type Version struct {
	Major, Minor, Patch int
	Pre                 string
}

// ParseVersion reads "1.0.102", "v1.0.102" or "1.0.102-3".
func ParseVersion(s string) (Version, bool) {
	core, pre, _ := strings.Cut(strings.TrimPrefix(s, "v"), "-")
	core, _, _ = strings.Cut(core, "+")
	parts := strings.Split(core, ".")
	if len(parts) != 3 {
		return Version{}, false
	}
	var n [3]int
	for i, part := range parts {
		v, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return Version{}, false
		}
		n[i] = int(v)
	}
	return Version{n[0], n[1], n[2], pre}, true
}

// Compare orders versions; a pre-release comes before its release.
func (v Version) Compare(w Version) int {
	order := cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor), cmp.Compare(v.Patch, w.Patch))
	switch {
	case order != 0 || v.Pre == w.Pre:
		return order
	case v.Pre == "":
		return 1
	case w.Pre == "":
		return -1
	}
	return cmp.Compare(v.Pre, w.Pre)
}

// Support is what this bridge makes of a CLI version.
type Support int

const (
	// Unsupported versions are refused: too old, or not a version at all.
	Unsupported Support = iota
	// Supported versions are between the oldest and the pinned one.
	Supported
	// Newer versions are accepted with a warning.
	Newer
)

// SupportOf judges a version as reported by the CLI.
func SupportOf(version string) Support {
	v, ok := ParseVersion(version)
	oldest, _ := ParseVersion(OldestVersion)
	pinned, _ := ParseVersion(PinnedVersion)
	switch {
	case !ok || v.Compare(oldest) < 0:
		return Unsupported
	case v.Compare(pinned) > 0:
		return Newer
	}
	return Supported
}
