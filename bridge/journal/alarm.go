package journal

import (
	"sync/atomic"
	"time"
)

// alarm is a timer that rings an interval after the first of several requests. A writer that has nothing to do is not woken.
// It is safe for concurrent use.
type alarm struct {
	timer    *time.Timer
	interval time.Duration
	set      atomic.Bool
}

// newAlarm returns an alarm that nothing has requested.
func newAlarm(interval time.Duration) *alarm {
	a := &alarm{timer: time.NewTimer(interval), interval: interval}
	a.timer.Stop()
	return a
}

// request has the alarm ring, unless it is about to.
func (a *alarm) request() {
	if !a.set.Load() && a.set.CompareAndSwap(false, true) {
		a.timer.Reset(a.interval)
	}
}

// rang permits further requests. The goroutine that has received from the timer calls it first.
func (a *alarm) rang() { a.set.Store(false) }
