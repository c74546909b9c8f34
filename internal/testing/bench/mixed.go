package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// mixedSessions have turns at the same time, mixedSends each in a repeat, with pauses of mixedPause on average.
const (
	mixedSessions = 16
	mixedSends    = 100
	mixedPause    = 10 * time.Millisecond
)

// mixed has sessions send at random times, so that the server has something to do most of the time and is idle the
// rest. It notes the time of a send at the median and at the 99th of 100.
func (c *contender) mixed(ctx context.Context, r *run) error {
	all := make([]*attached, mixedSessions)
	defer func() {
		for _, a := range all {
			if a != nil {
				r.end("attached", func() error { return a.end(ctx) })
			}
		}
	}()
	for i := range all {
		var err error
		if all[i], err = newAttached(ctx, c.bridge, false, &cliv1.SessionConfig{}, ""); err != nil {
			return err
		}
	}
	const n = mixedSessions * mixedSends
	got, err := r.measured(c.bridge, n, func() ([]float64, error) { return sendMixed(ctx, all) })
	if err != nil {
		return err
	}
	c.noteTrips(fmt.Sprintf("send, %d sessions at random times", mixedSessions), got)
	return nil
}

// sendMixed returns the times of all sends.
func sendMixed(ctx context.Context, all []*attached) ([]float64, error) {
	var mu sync.Mutex
	var took []float64
	var errs []error
	var work sync.WaitGroup
	for _, a := range all {
		work.Go(func() {
			for range mixedSends {
				time.Sleep(time.Duration(rand.ExpFloat64() * float64(mixedPause)))
				one, err := talking{a}.sends(ctx, 1)
				mu.Lock()
				took, errs = append(took, one...), append(errs, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	work.Wait()
	return took, errors.Join(errs...)
}
