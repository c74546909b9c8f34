package schemagen

import (
	"bytes"
	_ "embed" // the pins
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/quirks"
)

//go:embed pins.txt
var pinsText string

// Pin is what the schemas of one version must be: their sha256 sums, in the order
// of SchemaFiles. The files themselves are not ours to publish.
type Pin struct {
	Version string
	SHA256  [2]string
}

// Pins are the versions that are generated from, oldest first.
type Pins []Pin

// Pinned returns the pins that this program was built with.
func Pinned() (Pins, error) { return parsePins(pinsText) }

// ReadPins reads pins from a file.
func ReadPins(path string) (Pins, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read pins: %w", err)
	}
	return parsePins(string(data))
}

func parsePins(text string) (Pins, error) {
	var pins Pins
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if len(words) != 3 || !versionForm.MatchString(words[0]) || len(words[1]) != 64 || len(words[2]) != 64 {
			return nil, fmt.Errorf("pins: line %d: want a version and two sha256 sums, got %q", i+1, line)
		}
		if pins.Find(words[0]) != nil {
			return nil, fmt.Errorf("pins: line %d: %q is pinned twice", i+1, words[0])
		}
		pins = append(pins, Pin{words[0], [2]string{words[1], words[2]}})
	}
	slices.SortFunc(pins, func(a, b Pin) int { return CompareVersions(a.Version, b.Version) })
	return pins, nil
}

// Write writes the pins to a file that ReadPins can read.
func (p Pins) Write(path string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# version, then the sha256 of %s and of %s\n", SchemaFiles[0], SchemaFiles[1])
	for _, pin := range p {
		fmt.Fprintln(&b, pin.Version, pin.SHA256[0], pin.SHA256[1])
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write pins: %w", err)
	}
	return nil
}

// Find returns the pin of a version, or nil.
func (p Pins) Find(version string) *Pin {
	for i := range p {
		if p[i].Version == version {
			return &p[i]
		}
	}
	return nil
}

// With returns the pins and one more, in its place.
func (p Pins) With(pin Pin) Pins {
	out := append(slices.Clone(p), pin)
	slices.SortFunc(out, func(a, b Pin) int { return CompareVersions(a.Version, b.Version) })
	return out
}

// Before returns the version before another one, or "".
func (p Pins) Before(version string) string {
	before := ""
	for _, pin := range p {
		if CompareVersions(pin.Version, version) < 0 {
			before = pin.Version
		}
	}
	return before
}

// check compares the sums of a version's schema files with the pinned ones.
func (p Pins) check(version string, sums [2]string) error {
	pin := p.Find(version)
	if pin == nil {
		return fmt.Errorf("version %q is not pinned: its schemas have sha256 %s and %s", version, sums[0], sums[1])
	}
	for i, file := range SchemaFiles {
		if sums[i] != pin.SHA256[i] {
			return fmt.Errorf("%s of %s: sha256 is %s, pinned is %s", file, version, sums[i], pin.SHA256[i])
		}
	}
	return nil
}

// CompareVersions compares two versions such as 1.0.9 and 1.0.81 number by number. A
// pre-release such as 1.0.83-2 comes before its release.
func CompareVersions(a, b string) int {
	v, _ := quirks.ParseVersion(a) // versionForm has no others
	w, _ := quirks.ParseVersion(b)
	return v.Compare(w)
}
