package main

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// Only what the server itself says that it left out of order is excused, in its session, its
// epoch, and as far as a burst may go without being known for one.
func TestDisorders(t *testing.T) {
	t.Parallel()
	k := &checker{disorders: disorders([]string{
		`server: level=WARN msg="call ended" session_id=s1 epoch=7 after_seq=1 through_seq=9000`,
		`server: level=WARN msg="` + session.LeftOutOfOrder +
			`" session_id=s1 reason=pause epoch=7 after_seq=100 through_seq=120`,
		`level=WARN msg="` + session.LeftOutOfOrder + `" session_id=s3 reason=pause`,
	})}
	for _, c := range []struct {
		session string
		at      place
		want    bool
	}{
		{"s1", place{7, 100}, false},
		{"s1", place{7, 101}, true},
		{"s1", place{7, 120 + session.LeftEvents}, true},
		{"s1", place{7, 120 + maxLeft}, true},
		{"s1", place{7, 121 + maxLeft}, false},
		{"s1", place{8, 110}, false},
		{"s1", place{6, 110}, false},
		{"s2", place{7, 110}, false},
		{"s3", place{7, 1}, false},
	} {
		if got := k.excused(&conversation{id: c.session}, c.at); got != c.want {
			t.Errorf("%v of %s: excused %v, want %v", c.at, c.session, got, c.want)
		}
	}
}
