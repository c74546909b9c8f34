package clibin

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

//go:embed pins.txt
var pinsText string

// Pin describes the published package of a CLI version for a platform.
type Pin struct {
	// Version and Platform name the package: @github/copilot-PLATFORM@VERSION.
	Version, Platform string
	// Integrity is npm's integrity of the package's tarball.
	Integrity string
	// Executable is the SHA-256 of the executable, Unpacked the digest of the files that it unpacks, in hexadecimal;
	// "" if not measured.
	Executable, Unpacked string
}

// Pins is a table of published packages.
type Pins []Pin

// defaultPins parses the embedded table.
var defaultPins = sync.OnceValues(func() (Pins, error) { return parsePins(pinsText) })

// parsePins parses lines of VERSION PLATFORM INTEGRITY EXECUTABLE UNPACKED.
func parsePins(text string) (Pins, error) {
	var table Pins
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) != 5 {
			return nil, fmt.Errorf("pins: line %d has %d fields, want 5", n+1, len(f))
		}
		for i := range f {
			f[i] = strings.TrimPrefix(f[i], "-")
		}
		table = append(table, Pin{f[0], f[1], f[2], f[3], f[4]})
	}
	return table, nil
}

// of returns the pin of a version for the first matching platform.
func (t Pins) of(version string, platforms []string) (Pin, bool) {
	for _, platform := range platforms {
		for _, p := range t {
			if p.Version == version && p.Platform == platform {
				return p, true
			}
		}
	}
	return Pin{}, false
}

// byExecutable returns the pin of the executable with a digest.
func (t Pins) byExecutable(sum string) (Pin, bool) {
	for _, p := range t {
		if p.Executable != "" && p.Executable == sum {
			return p, true
		}
	}
	return Pin{}, false
}

// table returns the Locator's pins.
func (l *Locator) table() (Pins, error) {
	if l.Pins != nil {
		return l.Pins, nil
	}
	return defaultPins()
}
