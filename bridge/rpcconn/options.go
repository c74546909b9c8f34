package rpcconn

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"
)

// Defaults of Options.
const (
	// DefaultMaxFrame is large enough for the history of a long session in one reply.
	DefaultMaxFrame = 128 << 20
	// CLIMaxDepth is how deeply messages to the CLI may be nested: 1.0.81 and 1.0.102 drop deeper
	// ones without an answer.
	CLIMaxDepth = 127
	// DefaultMaxInFlight stays below the 256 at which CLI 1.0.81 refuses.
	DefaultMaxInFlight = 192
	// DefaultReservedInFlight is the share of them kept for priority calls.
	DefaultReservedInFlight = 32
	// DefaultMaxRequestWorkers bounds the peer's requests served at once.
	DefaultMaxRequestWorkers = 256
	// DefaultMaxRequestQueue bounds the peer's requests waiting for a worker.
	DefaultMaxRequestQueue = 1024
	// DefaultMaxOutbound bounds the bytes waiting for the peer to read.
	DefaultMaxOutbound = 64 << 20
	// DefaultAbandonGrace is how long an abandoned call keeps its slot.
	DefaultAbandonGrace = time.Minute
	// DefaultDrainGrace is how long a peer that cannot be written to is still read.
	DefaultDrainGrace = 2 * time.Second
)

// Options configures a Conn. The zero value of every field is usable.
type Options struct {
	// Event takes each session.event notification: the whole message, as
	// read. It runs on the reader goroutine, in wire order and in order with
	// replies (see OnReply). It must not block, and body is valid only
	// during the call.
	Event func(body []byte)

	// Pause, if set, is called on the reader goroutine when all that was read has been
	// handed on, before more is read, which may take any time, and when no more will be. It
	// must not block. What Event does not want to do for each event it can do there for a
	// burst.
	Pause func()

	// Throttle, if set, is called on the reader goroutine after Pause, before more is read. It
	// may block, and slows the peer by that; it must return when over is closed, and must not
	// wait for anything that the peer has yet to say. It reports whether it has blocked.
	Throttle func(over <-chan struct{}) bool

	// Notification takes every other notification, under the same rules.
	// params is nil when the message has none.
	Notification func(method string, params []byte)

	// Arrive, if set, sees each request of the peer on the reader goroutine,
	// in order with events, before a worker gets it; it may set Mark. Requests
	// for which it returns the same non-empty lane are served one after the
	// other in the order they came. It must not block. Params are the
	// handler's: Arrive only reads them.
	Arrive func(r *Request) (lane string)

	// Request serves a request of the peer on one of the workers. ctx ends
	// with the connection or by CancelRequest. Its result must be one JSON
	// value (nil counts as null); an error that is or wraps an *Error reaches
	// the peer with that code, message and data. Without Request every
	// request is answered with CodeMethodNotFound.
	Request func(ctx context.Context, r *Request) (json.RawMessage, error)

	// Strict answers messages that mean nothing with an error, as a server of JSON-RPC
	// does; without it they are counted and logged. Requests whose id is null are such.
	Strict bool

	// MaxFrame is the largest frame accepted from the peer.
	MaxFrame int
	// MaxDepth is how many levels of objects and arrays a message to the peer may have, its own
	// included; a deeper one is not sent. Zero sets no limit.
	MaxDepth int
	// MaxInFlight bounds the calls the peer is busy with, ReservedInFlight of
	// which only calls made with Priority may use. A negative
	// ReservedInFlight reserves none.
	MaxInFlight      int
	ReservedInFlight int
	// MaxRequestWorkers and MaxRequestQueue bound the requests being served
	// and waiting; one more is answered with CodeOverloaded. A negative
	// MaxRequestQueue lets none wait.
	MaxRequestWorkers int
	MaxRequestQueue   int
	// MaxOutbound bounds the bytes queued for a peer that does not read. An
	// eighth of it is kept for priority calls and answers.
	MaxOutbound int

	// AbandonGrace is how long a call whose context ended after it was
	// written keeps its in-flight slot while no reply comes.
	AbandonGrace time.Duration
	// DrainGrace is how long reading goes on after writing has failed, so that
	// what the peer said before it went is not lost.
	DrainGrace time.Duration

	// Logger gets protocol oddities, never contents. Nil discards them.
	Logger *slog.Logger
}

// withDefaults returns o with every unset field filled in.
func (o Options) withDefaults() Options {
	setDefault(&o.MaxFrame, DefaultMaxFrame)
	setDefault(&o.MaxInFlight, DefaultMaxInFlight)
	setDefault(&o.ReservedInFlight, min(DefaultReservedInFlight, o.MaxInFlight/2))
	setDefault(&o.MaxRequestWorkers, DefaultMaxRequestWorkers)
	setDefault(&o.MaxRequestQueue, DefaultMaxRequestQueue)
	setDefault(&o.MaxOutbound, DefaultMaxOutbound)
	setDefault(&o.AbandonGrace, DefaultAbandonGrace)
	setDefault(&o.DrainGrace, DefaultDrainGrace)
	// At least one slot stays for ordinary calls, or none could ever be made.
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

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// CallOption changes one call.
type CallOption func(*outgoing)

// OnReply runs f on the reader goroutine when the reply (a result or an error)
// is read: every event before it on the wire has been given to Event, none
// after it. f does not run when the call ends without a reply, or after its
// context has ended. It must not block.
func OnReply(f func()) CallOption {
	return func(out *outgoing) { out.onReply = f }
}

// OnFree runs f, once, when the call does not count as in flight any more: when its reply has come,
// or, of a call whose context ended before that, when its slot is given back. f also runs when the
// call is refused, but not when the connection ends first. It must not block, nor use the Conn.
func OnFree(f func()) CallOption {
	return func(out *outgoing) { out.onFree = f }
}

// OnQueued runs f on the caller's goroutine when the request has its place among what is
// sent: everything that is sent after it comes after it. f does not run when the request
// is refused.
func OnQueued(f func()) CallOption {
	return func(out *outgoing) { out.onQueued = f }
}

// Priority lets a call use the reserved lane, for answers to what the peer
// asked: they must not wait behind calls that may be waiting for them.
func Priority() CallOption {
	return func(out *outgoing) { out.priority = true }
}
