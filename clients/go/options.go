package copilot

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"google.golang.org/grpc"
)

// Option changes how a [Client] is made.
type Option func(*settings)

type settings struct {
	token     TokenSource
	tls       *tls.Config
	insecure  bool
	name      string
	log       *slog.Logger
	reconnect ReconnectPolicy
	grpc      []grpc.DialOption
}

func newSettings(opts []Option) *settings {
	st := &settings{
		log: slog.New(slog.DiscardHandler),
		reconnect: ReconnectPolicy{
			MinBackoff:  100 * time.Millisecond,
			MaxBackoff:  5 * time.Second,
			GiveUpAfter: 5 * time.Minute,
		},
	}
	for _, opt := range opts {
		opt(st)
	}
	return st
}

// WithToken sends a bearer token with every call. It is only sent in the clear to unix
// sockets, to the loopback interface, or where [WithInsecure] allows it.
func WithToken(token string) Option {
	return WithTokenSource(func(context.Context) (string, error) { return token, nil })
}

// WithTokenSource is [WithToken] with a token that changes: see [TokenFromFile]. If the
// server rejects a token that the source has replaced meanwhile, streams and idempotent
// calls are repeated with the new one.
func WithTokenSource(source TokenSource) Option { return func(s *settings) { s.token = source } }

// WithTLS uses TLS with this configuration. It is the default, with the system's
// roots, for all targets but unix sockets and the loopback interface.
func WithTLS(config *tls.Config) Option { return func(s *settings) { s.tls = config } }

// WithInsecure speaks plain text even to another machine, token included.
func WithInsecure() Option { return func(s *settings) { s.insecure = true } }

// WithName sets the name under which the client takes part in sessions, for people and
// logs. [SessionOptions.Name] wins over it.
func WithName(name string) Option { return func(s *settings) { s.name = name } }

// WithLogger logs broken streams, failing handlers and the like. Default: nothing.
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// WithGRPC adds dial options. They come last, so that they win over the client's own.
func WithGRPC(opts ...grpc.DialOption) Option {
	return func(s *settings) { s.grpc = append(s.grpc, opts...) }
}

// ReconnectPolicy says how broken streams are opened again.
type ReconnectPolicy struct {
	// The longest first wait; each following one is up to twice as long. Waits are
	// drawn at random below their limit, so that clients do not return in step.
	MinBackoff time.Duration
	// The limit that waits grow to.
	MaxBackoff time.Duration
	// How long to try, from the last moment at which the stream was alive. Zero: not
	// at all.
	GiveUpAfter time.Duration
}

// WithReconnect replaces the default policy: waits of 100 ms growing to 5 s, for five
// minutes. Whether a participant finds its place again depends on its grace time, see
// [SessionOptions.Grace]; after it, it joins anew.
func WithReconnect(p ReconnectPolicy) Option { return func(s *settings) { s.reconnect = p } }

// WithoutReconnect makes a broken stream final.
func WithoutReconnect() Option { return WithReconnect(ReconnectPolicy{}) }
