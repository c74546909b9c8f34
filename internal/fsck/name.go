package fsck

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"unicode"
)

const (
	maxName    = 512
	maxElement = 255
	maxDepth   = 8
)

var (
	// partName is the name of a part, but for earlier files of the CLI's record.
	partName = regexp.MustCompile(`^(session\.json|journal\.jsonl|history/(events\.jsonl|plan\.md|(checkpoints|files|research)/.+))$`)
	// earlierFile is that of such a file, if it also has a digit and "jsonl".
	earlierFile = regexp.MustCompile(`^history/[A-Za-z0-9][A-Za-z0-9._-]{0,200}$`)
	// device is an element that Windows takes for a device, in upper case.
	device = regexp.MustCompile(`^(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[0-9¹²³]) *(\.|$)`)
)

// nameFault returns why a part may not have a name; empty if it may.
func (x *export) nameFault(name string) string {
	earlier := earlierFile.MatchString(name) && strings.ContainsAny(name, "0123456789") && strings.Contains(name, "jsonl")
	if !fs.ValidPath(name) || len(name) > maxName || strings.Count(name, "/") >= maxDepth || !earlier && !partName.MatchString(name) {
		return "is not a part of an export"
	}
	for _, r := range name {
		if r == '\\' || r == ':' || r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return fmt.Sprintf("has the character %q in its name", r)
		}
	}
	for element := range strings.SplitSeq(name, "/") {
		if len(element) > maxElement || strings.HasSuffix(element, ".") || strings.HasSuffix(element, " ") ||
			device.MatchString(strings.ToUpper(element)) {
			return fmt.Sprintf("has the element %q in its name, which not all systems permit", element)
		}
	}
	for i := range len(name) + 1 { // each folder, and the file
		if i < len(name) && name[i] != '/' {
			continue
		}
		spelled, folded := name[:min(i+1, len(name))], strings.ToLower(strings.ToUpper(name[:i]))
		if other, there := x.names[folded]; there && (other != spelled || i == len(name)) {
			return fmt.Sprintf("is there twice, or has a name that clashes with %q", other)
		}
		x.names[folded] = spelled
	}
	return ""
}
