package protorules

import "strings"

// Match compares a name with a pattern in which * stands for any text.
func Match(pattern, name string) bool {
	head, tail, found := strings.Cut(pattern, "*")
	if !found {
		return pattern == name
	}
	if !strings.HasPrefix(name, head) {
		return false
	}
	for i := len(head); i <= len(name); i++ {
		if Match(tail, name[i:]) {
			return true
		}
	}
	return false
}
