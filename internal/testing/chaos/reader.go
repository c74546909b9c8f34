package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// pace is how fast a reader reads.
type pace int

// The paces.
const (
	brisk pace = iota
	slow
	stuck // reads a little and then nothing more, until the schedule is over
	paces
)

// reader follows a session, over as many streams as it takes.
type reader struct {
	*track
	by     *caller
	pace   pace
	start  bridgev1.StreamStart
	end    context.CancelFunc
	unstop chan struct{} // closed when all are to read
	over   chan struct{}
}

// subscribe begins a reader.
func (w *world) subscribe(s step) {
	rng := s.rng(w.plan.Seed)
	to := w.conversation(s.pick[0])
	t := taste(rng.IntN(int(tastes)))
	r := &reader{
		track: newTrack(w, fmt.Sprintf("reader %d", len(w.audience.readers)), to.id, t),
		by:    w.caller(s.pick[1]),
		pace:  pace(rng.IntN(int(paces))), start: one(rng,
			bridgev1.StreamStart_STREAM_START_BEGINNING, bridgev1.StreamStart_STREAM_START_END),
		unstop: make(chan struct{}), over: make(chan struct{}),
	}
	var ctx context.Context
	ctx, r.end = context.WithCancel(w.ctx)
	w.rec.logf("%s reads session %d, taste %d, pace %d, %v", r.name, to.n, r.taste, r.pace, r.start)
	w.audience.readers = append(w.audience.readers, r)
	go func() {
		defer close(r.over)
		r.read(ctx, rng)
	}()
}

// unsubscribe ends a reader at any time.
func (w *world) unsubscribe(s step) {
	if len(w.audience.readers) > 0 {
		r := w.audience.readers[int(s.pick[0])%len(w.audience.readers)]
		w.rec.logf("%s ends", r.name)
		r.end()
	}
}

// read reads until ctx ends or the session is no more.
func (r *reader) read(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		err := r.stream(ctx, rng)
		r.mu.Lock()
		closed := r.closed
		r.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if reason := reasonOf(err); reason == "INVALID_FIELD" || reason == "INTERNAL" {
			r.w.rec.violated("%s of session %s at %v: %v", r.name, r.session, r.resume(), err)
			return
		}
		if closed {
			r.mu.Lock()
			r.closed = false // it was disconnected, and will be resumed; or the server stops
			r.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stream reads one stream.
func (r *reader) stream(ctx context.Context, rng *rand.Rand) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.by.events.Subscribe(ctx, &bridgev1.SubscribeRequest{
		Sessions: []*bridgev1.SessionCursor{{SessionId: r.session, After: r.resume(), Start: r.start,
			Filter: r.taste.filter()}},
		Options: &bridgev1.StreamOptions{
			HeartbeatInterval: durationpb.New(heartbeat),
			Fidelity:          one(rng, bridgev1.Fidelity_FIDELITY_TIDY, bridgev1.Fidelity_FIDELITY_EXACT),
			OriginalJson:      rng.IntN(2) == 0,
		},
		Callbacks: rng.IntN(2) == 0,
	})
	if err != nil {
		return err
	}
	left := rng.IntN(30) // frames until a reader that gets stuck does
	for {
		f, err := stream.Recv()
		if err != nil {
			return err
		}
		r.frame(f)
		if f.GetGoAway() != nil && rng.IntN(2) == 0 {
			return nil // as a GoAway asks
		}
		left--
		wait := time.Duration(0)
		switch {
		case r.pace == slow:
			wait = time.Duration(rng.IntN(8)) * time.Millisecond
		case r.pace == stuck && left < 0:
			wait = time.Hour
		}
		if wait == 0 {
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.unstop:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}
