package rpcconn

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"time"
)

// Defaults of Options.
const (
	// DefaultMaxFrame permits the history of a long session in one reply.
	DefaultMaxFrame = 128 << 20
	// CLIMaxDepth is the nesting limit for messages to the CLI: 1.0.81 and 1.0.102 drop deeper ones without a reply.
	CLIMaxDepth = 127
	// DefaultMaxInFlight is below 256, the limit of CLI 1.0.81.
	DefaultMaxInFlight = 192
	// DefaultReservedInFlight is the part of it reserved for priority calls.
	DefaultReservedInFlight = 32
	// DefaultMaxWaiting bounds the calls that wait for a slot.
	DefaultMaxWaiting = 4096
	// DefaultMaxRequestWorkers bounds the peer's requests being served.
	DefaultMaxRequestWorkers = 256
	// DefaultMaxRequestQueue bounds the peer's requests waiting for a worker.
	DefaultMaxRequestQueue = 1024
	// DefaultMaxOutbound bounds the bytes waiting for the peer to read.
	DefaultMaxOutbound = 64 << 20
	// DefaultAbandonGrace is how long an abandoned call keeps its slot.
	DefaultAbandonGrace = time.Minute
	// DefaultDrainGrace is how long reading continues after a write has failed.
	DefaultDrainGrace = 2 * time.Second
)

// Options configures a Conn. The zero value of every field is valid.
type Options struct {
	// Event receives each session.event notification: the whole message, as read. It runs on the reader goroutine, in
	// wire order and in order with replies (see OnReply). It must not block, and body is valid only during the call.
	Event func(body []byte)

	// Pause, if set, is called on the reader goroutine when all received messages were delivered, before the next
	// read, and when nothing more will be read. It must not block. Use it for work that Event postpones to the end of
	// a burst.
	Pause func()

	// Throttle, if set, is called on the reader goroutine after Pause, before the next read. It may block to slow the
	// peer down. It must return when over is closed, and must not wait for a message of the peer. It reports whether
	// it has blocked.
	Throttle func(over <-chan struct{}) bool

	// Notification receives every other notification, under the same rules. params is nil if the message has none.
	Notification func(method string, params []byte)

	// Arrive, if set, is called for each request of the peer on the reader goroutine, in order with events, before a
	// worker serves it; it may set Mark. Requests with the same non-empty lane are served one after the other in the
	// order of arrival. It must not block and must not modify Params.
	Arrive func(r *Request) (lane string)

	// Request serves a request of the peer on a worker. ctx ends with the connection or with the call. Its result
	// must be one JSON value (nil means null). An error that is or wraps an *Error determines code, message and data
	// of the reply. Without Request every request is answered with CodeMethodNotFound.
	Request func(ctx context.Context, r *Request) (json.RawMessage, error)

	// Strict makes the connection reply to invalid messages with an error, like a JSON-RPC server. Otherwise they are
	// counted and logged. A request whose id is null is invalid.
	Strict bool

	// MaxFrame is the size of the largest accepted frame.
	MaxFrame int
	// MaxDepth bounds the levels of objects and arrays in a message to the peer, including its outer object. A deeper
	// message is not sent. Zero sets no limit.
	MaxDepth int
	// MaxInFlight bounds the calls that the peer is processing. ReservedInFlight of them are for calls with Priority
	// only; a negative value reserves none.
	MaxInFlight      int
	ReservedInFlight int
	// MaxWaiting bounds the calls that wait until they may be in flight.
	MaxWaiting int
	// MaxRequestWorkers and MaxRequestQueue bound the requests being served and waiting. Further ones are answered
	// with CodeOverloaded. A negative MaxRequestQueue permits no waiting requests.
	MaxRequestWorkers int
	MaxRequestQueue   int
	// MaxOutbound bounds the bytes queued for the peer. An eighth of it is reserved for priority calls and replies.
	MaxOutbound int

	// AbandonGrace is how long a call whose context ended after it was written keeps its in-flight slot without a
	// reply.
	AbandonGrace time.Duration
	// DrainGrace is how long reading continues after a write has failed, so that the peer's last messages are not
	// lost.
	DrainGrace time.Duration

	// Logger receives warnings about the protocol, never contents. Nil discards them.
	Logger *slog.Logger
}

// withDefaults returns o with defaults for unset fields.
func (o Options) withDefaults() Options {
	o.MaxFrame = cmp.Or(o.MaxFrame, DefaultMaxFrame)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, DefaultMaxInFlight)
	o.ReservedInFlight = cmp.Or(o.ReservedInFlight, min(DefaultReservedInFlight, o.MaxInFlight/2))
	o.MaxWaiting = cmp.Or(o.MaxWaiting, DefaultMaxWaiting)
	o.MaxRequestWorkers = cmp.Or(o.MaxRequestWorkers, DefaultMaxRequestWorkers)
	o.MaxRequestQueue = cmp.Or(o.MaxRequestQueue, DefaultMaxRequestQueue)
	o.MaxOutbound = cmp.Or(o.MaxOutbound, DefaultMaxOutbound)
	o.AbandonGrace = cmp.Or(o.AbandonGrace, DefaultAbandonGrace)
	o.DrainGrace = cmp.Or(o.DrainGrace, DefaultDrainGrace)
	// At least one slot remains for ordinary calls.
	o.ReservedInFlight = max(0, min(o.ReservedInFlight, o.MaxInFlight-1))
	o.MaxRequestQueue = max(0, o.MaxRequestQueue)
	if o.Event == nil {
		o.Event = func([]byte) {}
	}
	if o.Notification == nil {
		o.Notification = func(string, []byte) {}
	}
	if o.Arrive == nil {
		o.Arrive = func(*Request) string { return "" }
	}
	if o.Request == nil {
		o.Request = func(_ context.Context, r *Request) (json.RawMessage, error) {
			return nil, &Error{Code: CodeMethodNotFound, Message: "Unhandled method " + r.Method}
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// CallOption changes one call.
type CallOption func(*outgoing)

// OnReply runs f on the reader goroutine when the reply (a result or an error) is read: Event has received every
// event before it on the wire and none after it. f does not run if the call ends without a reply, or after its
// context has ended. It must not block.
func OnReply(f func()) CallOption {
	return func(out *outgoing) { out.onReply = f }
}

// OnFree runs f, once, when the call no longer counts as in flight: when its reply was received, or, if its context
// ended earlier, when its slot is released. f also runs if the call is refused, and when the connection ends.
// It must not block or use the Conn.
func OnFree(f func()) CallOption {
	return func(out *outgoing) { out.onFree = f }
}

// OnQueued runs f when the request is queued for writing: everything sent later follows it. f does not run if the
// request is refused. It must not block.
func OnQueued(f func()) CallOption {
	return func(out *outgoing) { out.onQueued = f }
}

// Priority lets a call use the reserved slots. It is for answers to the peer's requests: they must not wait behind
// calls that may be waiting for them.
func Priority() CallOption {
	return func(out *outgoing) { out.priority = true }
}
