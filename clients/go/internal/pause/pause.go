// Package pause computes the pauses between attempts.
package pause

import (
	"context"
	"time"

	exponential "github.com/cenkalti/backoff/v5"
)

// Backoff has the pauses between the attempts of one stream or call. It is not safe for
// concurrent use.
type Backoff struct {
	giveUpAfter time.Duration
	pauses      exponential.ExponentialBackOff
	aliveAt     time.Time
	excused     bool
}

// New returns a Backoff whose pauses are random, up to a limit that doubles from the first to the
// longest one. Attempts end after the given time without a sign of life.
func New(first, longest, giveUpAfter time.Duration) *Backoff {
	// Each pause is anything between 0 and the limit: half of the limit, give or take all of it.
	b := &Backoff{giveUpAfter: giveUpAfter, pauses: exponential.ExponentialBackOff{
		InitialInterval: first / 2, RandomizationFactor: 1, Multiplier: 2, MaxInterval: longest / 2,
	}}
	b.Reset()
	return b
}

// Reset notes that the stream is alive.
func (b *Backoff) Reset() {
	b.pauses.Reset()
	b.aliveAt = time.Now()
	b.excused = false
}

// Excuse reports whether it is called for the first time since the last sign of life: for a failure
// that is a reason for one attempt.
func (b *Backoff) Excuse() bool {
	first := !b.excused
	b.excused = true
	return first
}

// Wait sleeps before the next attempt, for at least the time after which the server asks for one.
// It returns false if there is to be none: the time is up, or ctx has ended.
func (b *Backoff) Wait(ctx context.Context, retryAfter time.Duration) bool {
	delay := retryAfter + b.pauses.NextBackOff()
	if time.Since(b.aliveAt)+delay >= b.giveUpAfter {
		return false
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
