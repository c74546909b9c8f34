package cluster

import (
	"testing"
	"testing/synctest"
	"time"
)

// The node's lease ends before the server can drop its key, for any delay of the acknowledgements.
func TestLeaseEndsBeforeTheKey(t *testing.T) {
	t.Parallel()
	const ttl = 8 * time.Second
	for name, test := range map[string]struct {
		renewals []renewal
		want     time.Duration
	}{
		"never renewed":        {nil, 6 * time.Second},
		"renewed":              {[]renewal{{sent: 2 * time.Second}}, 8 * time.Second},
		"late acknowledgement": {[]renewal{{sent: 2 * time.Second, acked: 3 * time.Second}}, 8 * time.Second},
		"after the end":        {[]renewal{{sent: 5 * time.Second, acked: 2 * time.Second}}, 6 * time.Second},
		"acknowledged together": {
			[]renewal{{sent: time.Second, acked: 3 * time.Second}, {sent: 4 * time.Second}}, 10 * time.Second,
		},
		"many": {[]renewal{{sent: time.Second}, {sent: 3 * time.Second}, {sent: 5 * time.Second}}, 11 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				m := newMembership("a", timing{ttl}, func() time.Duration { return time.Since(begin) }, 0)
				endedAt := make(chan time.Duration, 1)
				go func() {
					<-m.lost
					endedAt <- time.Since(begin)
				}()
				for _, r := range test.renewals {
					time.Sleep(r.sent + r.acked - time.Since(begin))
					m.extend(r.sent)
				}
				ended := <-endedAt
				dropped := time.Duration(0) + ttl
				for _, r := range test.renewals {
					if r.sent+r.acked <= ended {
						dropped = r.sent + ttl // at the earliest
					}
				}
				if ended != test.want || dropped-ended < ttl/4 || m.valid() {
					t.Errorf("the lease ended after %s, want %s; its key may go after %s", ended, test.want, dropped)
				}
			})
		})
	}
}

// renewal is a renewal of a lease: when it was sent, and how long its acknowledgement took.
type renewal struct{ sent, acked time.Duration }

// A node that was frozen knows at its first look that its lease is over, also if its timers have not run.
func TestFrozenNodeLooksAtTheClock(t *testing.T) {
	t.Parallel()
	var now time.Duration // of a machine that was suspended: timers do not count the time
	m := newMembership("a", timing{time.Hour}, func() time.Duration { return now }, 0)
	defer m.end()
	if !m.valid() {
		t.Fatal("a new lease is not valid")
	}
	now = 45 * time.Minute
	m.extend(40 * time.Minute)
	if m.valid() {
		t.Error("a lease is valid after its end")
	}
	select {
	case <-m.lost:
	default:
		t.Error("the end is not announced")
	}
}
