package quirks

import (
	"cmp"
	"strconv"
	"strings"
)

// Version is a CLI version: three numbers and an optional pre-release part.
type Version struct {
	Major, Minor, Patch int
	Pre                 string
}

// ParseVersion parses "1.0.102", "v1.0.102" or "1.0.102-3".
func ParseVersion(s string) (Version, bool) {
	core, _, _ := strings.Cut(strings.TrimPrefix(s, "v"), "+")
	core, pre, _ := strings.Cut(core, "-")
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

// Compare orders versions. A pre-release comes before its release, and 1.0.83-10 after
// 1.0.83-9.
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
	x, y := strings.Split(v.Pre, "."), strings.Split(w.Pre, ".")
	for i := range min(len(x), len(y)) {
		m, errM := strconv.Atoi(x[i])
		n, errN := strconv.Atoi(y[i])
		if errM != nil || errN != nil {
			order = cmp.Compare(x[i], y[i])
		} else {
			order = cmp.Compare(m, n)
		}
		if order != 0 {
			return order
		}
	}
	return cmp.Compare(len(x), len(y))
}
