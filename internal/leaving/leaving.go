// Package leaving tells a stream that the connection it is on is about to be closed: at its
// maximum age, say. It is how the server tells the bridge, which knows no connections.
package leaving

import (
	"context"
	"time"
)

// Signal reports the state of a stream's connection.
type Signal struct {
	// Away is closed when streams have to reconnect elsewhere, Ended when the remaining ones have to end.
	Away, Ended <-chan struct{}
	// Grace is the time between the two.
	Grace func() time.Duration
}

type key struct{}

// With returns a context whose streams get the signal.
func With(ctx context.Context, s *Signal) context.Context {
	return context.WithValue(ctx, key{}, s)
}

// From returns the signal of a context; one that never comes if it has none.
func From(ctx context.Context) *Signal {
	if s, ok := ctx.Value(key{}).(*Signal); ok {
		return s
	}
	return &never
}

// never is the signal of a context without one.
var never = Signal{Grace: func() time.Duration { return 0 }}
