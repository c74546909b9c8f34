// Package position carries, beside the reply to a call, the journal position at which
// the reply stands: the bridge records it, the server sends it as a trailer.
package position

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Trailer is the name of the trailer that carries a position.
const Trailer = "copilot-position"

// Position is a place in a session's journal.
type Position struct {
	Epoch, Seq uint64
}

// String gives the form of the trailer's value.
func (p Position) String() string { return fmt.Sprintf("%d/%d", p.Epoch, p.Seq) }

// Recorder holds the position of one reply.
type Recorder struct{ p atomic.Pointer[Position] }

// Position returns what was recorded last, and whether anything was.
func (r *Recorder) Position() (Position, bool) {
	if p := r.p.Load(); p != nil {
		return *p, true
	}
	return Position{}, false
}

type key struct{}

// WithRecorder returns a context in which Record reaches the recorder returned.
func WithRecorder(ctx context.Context) (context.Context, *Recorder) {
	r := new(Recorder)
	return context.WithValue(ctx, key{}, r), r
}

// Record notes the position of the reply to the call that ctx belongs to. Without a
// recorder in ctx it does nothing.
func Record(ctx context.Context, p Position) {
	if r, ok := ctx.Value(key{}).(*Recorder); ok {
		r.p.Store(&p)
	}
}
