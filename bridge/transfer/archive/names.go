package archive

import (
	"fmt"
	"io/fs"
	"strings"
	"unicode"
)

// names finds names of one archive that clash with each other.
type names struct {
	// spelled has the exact spelling of each path and folder, by its spelling without case.
	spelled map[string]string
	// files has the paths of files, without case.
	files map[string]bool
}

func newNames() *names {
	n := &names{spelled: map[string]string{}, files: map[string]bool{}}
	_ = n.add(manifestName, 1)
	_ = n.add(digestName, 1)
	return n
}

// add checks a name, alone and beside the earlier ones.
func (n *names) add(name string, depth int) error {
	if err := checkName(name); err != nil {
		return err
	}
	if d := strings.Count(name, "/") + 1; d > depth {
		return fmt.Errorf("%w: the name %q has %d elements, of at most %d", ErrLimit, name, d, depth)
	}
	for i := range len(name) + 1 {
		if i < len(name) && name[i] != '/' {
			continue
		}
		path := name[:i]
		folded := fold(path)
		other, known := n.spelled[folded]
		if n.files[folded] || known && (other != path || i == len(name)) {
			return fmt.Errorf("%w: the name %q clashes with %q", ErrInvalid, name, other)
		}
		n.spelled[folded] = path
	}
	n.files[fold(name)] = true
	return nil
}

// fold returns a text that is equal for names that differ only in the case of single characters.
func fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// checkName checks a name alone.
func checkName(name string) error {
	if len(name) > MaxNameBytes {
		return fmt.Errorf("%w: the name %.40q… is longer than %d bytes", ErrInvalid, name, MaxNameBytes)
	}
	if !fs.ValidPath(name) || name == "." {
		return fmt.Errorf("%w: %q is not the name of a file in a folder", ErrInvalid, name)
	}
	for _, r := range name {
		if r == '\\' || r == ':' || r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return fmt.Errorf("%w: the name %q has the character %q", ErrInvalid, name, r)
		}
	}
	for element := range strings.SplitSeq(name, "/") {
		if len(element) > MaxElementBytes {
			return fmt.Errorf("%w: an element of the name %.140q has %d bytes, of at most %d", ErrInvalid, name,
				len(element), MaxElementBytes)
		}
		if strings.HasSuffix(element, ".") || strings.HasSuffix(element, " ") || isDevice(element) {
			return fmt.Errorf("%w: the name %q has the element %q, which is not portable", ErrInvalid, name, element)
		}
	}
	return nil
}

// isDevice reports whether Windows takes an element of a name for a device.
func isDevice(element string) bool {
	base, _, _ := strings.Cut(element, ".")
	base = strings.ToUpper(strings.TrimRight(base, " "))
	switch base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	number, found := strings.CutPrefix(base, "COM")
	if !found {
		number, found = strings.CutPrefix(base, "LPT")
	}
	return found && len([]rune(number)) == 1 && strings.Contains("0123456789¹²³", number)
}
