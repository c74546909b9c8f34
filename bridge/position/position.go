// Package position has the text of a journal position, and passes the position of a call's reply from the bridge, which
// records it, to the server, which sends it as a trailer.
package position

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Trailer is the name of the trailer with the position.
const Trailer = "copilot-position"

// Position is a place in a session's journal. The zero position precedes all events.
type Position struct {
	Epoch, Seq uint64
}

// Before reports whether p is an earlier place than q.
func (p Position) Before(q Position) bool {
	return p.Epoch < q.Epoch || p.Epoch == q.Epoch && p.Seq < q.Seq
}

// String returns the value of the trailer.
func (p Position) String() string { return fmt.Sprintf("%d/%d", p.Epoch, p.Seq) }

// Parse is the inverse of String. ok is false for every other text, also for one with a sign, a space, a leading zero
// or something after the position.
func Parse(text string) (p Position, ok bool) {
	epoch, seq, _ := strings.Cut(text, "/")
	var errs [2]error
	p.Epoch, errs[0] = strconv.ParseUint(epoch, 10, 64)
	p.Seq, errs[1] = strconv.ParseUint(seq, 10, 64)
	if errs != [2]error{} || p.String() != text {
		return Position{}, false
	}
	return p, true
}

// Recorder holds the position of one reply. It is the context for which it records.
type Recorder struct {
	context.Context //nolint:containedctx // it is one

	mu       sync.Mutex
	recorded bool
	p        Position
}

// Value implements context.Context.
func (r *Recorder) Value(k any) any {
	if k == (key{}) {
		return r
	}
	return r.Context.Value(k)
}

// Position returns the last recorded position, and whether there is one.
func (r *Recorder) Position() (Position, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.p, r.recorded
}

type key struct{}

// WithRecorder returns a context and the recorder that Record uses with it.
func WithRecorder(ctx context.Context) (context.Context, *Recorder) {
	r := &Recorder{Context: ctx}
	return r, r
}

// Record records the position of the reply to ctx's call. Without a recorder in ctx it does nothing.
func Record(ctx context.Context, p Position) {
	if r, ok := ctx.Value(key{}).(*Recorder); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.p, r.recorded = p, true
	}
}

// Recorded returns the last position that was recorded for ctx's call, and whether there is one.
func Recorded(ctx context.Context) (Position, bool) {
	if r, ok := ctx.Value(key{}).(*Recorder); ok {
		return r.Position()
	}
	return Position{}, false
}
