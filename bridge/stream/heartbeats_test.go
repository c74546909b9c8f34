package stream

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// Each stream's heartbeat is due after its own interval, until the stream is closed. Without streams, no timer runs.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		svc := &Service{heartbeats: newHeartbeats()}
		h := svc.heartbeats
		(&Stream{service: svc}).Close() // it has not begun
		var streams []*Stream
		want := map[*Stream]time.Duration{} // when the heartbeat is due
		begin, random := time.Now(), rand.New(rand.NewPCG(1, 2))
		for range 100 {
			interval := time.Duration(1+random.IntN(20)) * time.Second
			st := &Stream{service: svc, options: Options{heartbeat: interval}, ready: newReadyQueue()}
			h.add(st)
			streams, want[st] = append(streams, st), interval
		}
		for range 60 {
			time.Sleep(time.Second)
			synctest.Wait()
			for _, st := range streams {
				_, due := st.ready.take(nil)
				if at, open := want[st]; due != (open && at == time.Since(begin)) {
					t.Fatalf("a heartbeat each %v is due after %v: %v", st.options.heartbeat, time.Since(begin), due)
				}
				switch {
				case random.IntN(20) == 0: // also while it is not in the queue
					st.Close()
					delete(want, st)
				case due:
					h.add(st)
					want[st] += st.options.heartbeat
				}
			}
		}
		if len(h.queue) != len(want) || len(want) == 0 {
			t.Errorf("%d streams are in the queue, not %d", len(h.queue), len(want))
		}
		for st := range want {
			st.Close()
		}
		if len(h.queue) > 0 || h.timer.Stop() {
			t.Errorf("the timer runs, and %d streams are left", len(h.queue))
		}
	})
}
