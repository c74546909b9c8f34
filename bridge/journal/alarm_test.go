package journal

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// An alarm rings an interval after the first of several requests, and once for them.
func TestAlarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAlarm(time.Second)
		for range 2 {
			time.Sleep(time.Minute)
			began := time.Now()
			a.request()
			time.Sleep(time.Second / 2)
			a.request()
			<-a.timer.C
			a.rang()
			if after := time.Since(began); after != time.Second {
				t.Errorf("it rings after %v", after)
			}
		}
		time.Sleep(time.Minute)
		select {
		case <-a.timer.C:
			t.Error("it rings unrequested")
		default:
		}
	})
}

// A writer that has nothing to do wakes up once a second, for the joint log.
func TestIdleWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64 // at the clock
		l := begin(t, &faultfs.FS{}, WriterConfig{TidyEvery: time.Hour, Now: func() time.Time {
			looks.Add(1)
			return time.Now()
		}})
		l.j.Append(durable(0))
		l.awaitShown()
		time.Sleep(3 * time.Minute) // then the joint log is empty
		looks.Store(0)
		const seconds = 60
		time.Sleep(seconds * time.Second)
		if n := looks.Load(); n > 2*seconds {
			t.Errorf("it looks %d times within %d seconds", n, seconds)
		}
		l.close()
	})
}
