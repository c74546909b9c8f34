package copilot

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/launch"
	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/transport"
)

// Option changes how a [Client] is made.
type Option func(*settings)

type settings struct {
	token     transport.TokenSource
	noToken   bool
	tls       transport.TLS
	insecure  bool
	unchecked bool
	name      string
	log       *slog.Logger
	reconnect ReconnectPolicy
	tracing   Tracing
	server    launch.Options
	grpc      []grpc.DialOption
}

func newSettings(opts []Option) *settings {
	st := &settings{
		log: slog.Default(),
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
// server rejects a token that the source has replaced meanwhile, streams and unary calls are
// repeated once with the new one.
func WithTokenSource(source TokenSource) Option {
	return func(s *settings) { s.token, s.noToken = transport.TokenSource(source), false }
}

// WithoutToken sends no bearer token, even if [TokenEnv] has one: for servers that know the client
// by its certificate.
func WithoutToken() Option { return func(s *settings) { s.token, s.noToken = nil, true } }

// TokenSource returns the current bearer token. The client calls it for every call, so it
// should cache the token. It may be called concurrently.
type TokenSource func(ctx context.Context) (string, error)

// TokenFromFile reads a token from a file, without the spaces around it, and reads it again
// when the file changes.
func TokenFromFile(path string) TokenSource { return TokenSource(transport.FileToken(path)) }

// WithTLS uses TLS with this configuration. TLS is the default, with the system's roots,
// for all targets except unix sockets and loopback addresses.
func WithTLS(config *tls.Config) Option { return func(s *settings) { s.tls.Config = config } }

// WithCAFile uses TLS, and accepts servers whose certificates are signed by one in this PEM
// file.
func WithCAFile(path string) Option { return func(s *settings) { s.tls.CAFile = path } }

// WithClientCertificate uses TLS, and identifies the client with a certificate and its key,
// in PEM files. They are read again for each connection.
func WithClientCertificate(certFile, keyFile string) Option {
	return func(s *settings) { s.tls.CertFile, s.tls.KeyFile = certFile, keyFile }
}

// WithServerName uses TLS, and expects this name in the server's certificate instead of the
// target's host.
func WithServerName(name string) Option { return func(s *settings) { s.tls.ServerName = name } }

// WithServerBinary sets the program of a private server, a path or a name on PATH: see
// [Launch].
func WithServerBinary(path string) Option { return func(s *settings) { s.server.Binary = path } }

// WithServerArgs adds arguments of `copilot-grpc serve` for a private server.
func WithServerArgs(args ...string) Option {
	return func(s *settings) { s.server.Args = append(s.server.Args, args...) }
}

// WithServerEnv adds environment variables of a private server, as NAME=VALUE.
func WithServerEnv(env ...string) Option {
	return func(s *settings) { s.server.Env = append(s.server.Env, env...) }
}

// WithInsecure speaks plain text even to another machine, token included.
func WithInsecure() Option { return func(s *settings) { s.insecure = true } }

// WithoutCheck makes [Dial] return before the server has answered, for programs that call servers which do not serve
// yet or do not know the caller: the first call reports what is wrong.
func WithoutCheck() Option { return func(s *settings) { s.unchecked = true } }

// WithName sets the name under which the client takes part in sessions, for people and
// logs. [SessionOptions.Name] wins over it.
func WithName(name string) Option { return func(s *settings) { s.name = name } }

// WithLogger logs broken streams, failing handlers and the like, instead of [slog.Default].
func WithLogger(log *slog.Logger) Option { return func(s *settings) { s.log = log } }

// WithOptions is several options as one.
func WithOptions(opts ...Option) Option {
	return func(s *settings) {
		for _, opt := range opts {
			opt(s)
		}
	}
}

// WithTracing connects handlers and prompts with the program's traces. Package copilototel
// has the option for OpenTelemetry.
func WithTracing(tracing Tracing) Option { return func(s *settings) { s.tracing = tracing } }

// Tracing carries W3C trace contexts between the program and the server. A nil function does
// nothing.
type Tracing struct {
	// Extract returns a context within the trace of a callback, for the callback's handler.
	Extract func(ctx context.Context, traceparent, tracestate string) context.Context
	// Inject returns the trace context of ctx for a prompt; an empty traceparent for none.
	Inject func(ctx context.Context) (traceparent, tracestate string)
}

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
