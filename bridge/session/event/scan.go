package event

import (
	"context"
	"iter"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// scanBytes is how much of the journal Since reads at a time.
const scanBytes = 1 << 20

// Since returns the events that the journal keeps after a position, in order. It waits until what has happened by now can be
// read.
func Since(ctx context.Context, j *journal.Journal, after journal.Position) iter.Seq[*journal.Record] {
	return func(yield func(*journal.Record) bool) {
		for rec := range Records(ctx, j, after) {
			if rec.Note == nil && !yield(rec) {
				return
			}
		}
	}
}

// Records is Since with the posted notes among the events.
func Records(ctx context.Context, j *journal.Journal, after journal.Position) iter.Seq[*journal.Record] {
	return func(yield func(*journal.Record) bool) {
		if j.AwaitShown(ctx) != nil {
			return
		}
		r, err := j.NewReader(after, false, func() {})
		if err != nil {
			return
		}
		defer r.Close()
		for {
			records, gap := r.Next(nil, scanBytes)
			if gap == nil && len(records) == 0 {
				return
			}
			for _, rec := range records {
				if !yield(rec) {
					return
				}
			}
		}
	}
}
