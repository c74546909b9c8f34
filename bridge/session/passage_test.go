package session

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A resume waits for the calls under way, calls wait for a resume, and who waits too long
// gives up.
func TestPassage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p passage
		ctx := t.Context()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		for range 2 {
			if err := p.enter(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.close(short); err == nil {
			t.Fatal("a resume did not wait for calls")
		}
		resumed := make(chan error, 1)
		go func() { resumed <- p.close(ctx) }()
		p.leave()
		synctest.Wait()
		if len(resumed) != 0 {
			t.Fatal("a resume did not wait for the second call")
		}
		p.leave()
		if err := <-resumed; err != nil {
			t.Fatal(err)
		}
		entered := make(chan error, 1)
		go func() { entered <- p.enter(ctx) }()
		synctest.Wait()
		if len(entered) != 0 {
			t.Fatal("a call did not wait for the resume")
		}
		p.open()
		if err := <-entered; err != nil {
			t.Fatal(err)
		}
		p.leave()
	})
}
