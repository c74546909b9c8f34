package tenancy

import (
	"regexp"
	"strings"
	"testing"
)

func TestValidID(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(sessionID)
	ids := []string{"", "é", "a\n", "a b", strings.Repeat("a", 128), strings.Repeat("a", 129)}
	for c := range 256 {
		ids = append(ids, "a"+string([]byte{byte(c)}))
	}
	for _, id := range ids {
		if got := validID(id); got != form.MatchString(id) {
			t.Errorf("%q is valid: %v", id, got)
		}
	}
}
