package session

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A resume waits for the calls under way, calls wait for a resume, and who waits too long
// gives up.
func TestResumeLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p resumeLock
		ctx := t.Context()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		for range 2 {
			if err := p.beginCall(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.beginResume(short); err == nil {
			t.Fatal("a resume did not wait for calls")
		}
		resumed := make(chan error, 1)
		go func() { resumed <- p.beginResume(ctx) }()
		p.endCall()
		synctest.Wait()
		if len(resumed) != 0 {
			t.Fatal("a resume did not wait for the second call")
		}
		p.endCall()
		if err := <-resumed; err != nil {
			t.Fatal(err)
		}
		entered := make(chan error, 1)
		go func() { entered <- p.beginCall(ctx) }()
		synctest.Wait()
		if len(entered) != 0 {
			t.Fatal("a call did not wait for the resume")
		}
		p.endResume()
		if err := <-entered; err != nil {
			t.Fatal(err)
		}
		p.endCall()
	})
}
