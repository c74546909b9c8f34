package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/pause"
)

func TestBackoffDoublesAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := pause.New(100*time.Millisecond, time.Second, time.Minute)
		begin := time.Now()
		for limit := 100 * time.Millisecond; limit < 10*time.Second; limit *= 2 {
			before := time.Now()
			if !b.Wait(t.Context(), 5*time.Millisecond) {
				t.Fatal("no attempt")
			}
			if waited := time.Since(before); waited < 5*time.Millisecond || waited > 5*time.Millisecond+min(limit, time.Second) {
				t.Errorf("waited %v, limit %v", waited, limit)
			}
		}
		for b.Wait(t.Context(), 0) {
			continue
		}
		if after := time.Since(begin); after > time.Minute || after < 58*time.Second {
			t.Errorf("gave up after %v", after)
		}
		b.Reset()
		if !b.Wait(t.Context(), 0) {
			t.Error("no attempt after a sign of life")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if b.Wait(ctx, time.Second) {
			t.Error("an attempt after the end of the context")
		}
	})
}
