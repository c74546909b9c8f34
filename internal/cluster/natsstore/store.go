package natsstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

const (
	// connectTimeout bounds the connection to one server.
	connectTimeout = 5 * time.Second
	// openTimeout bounds Open after the connection.
	openTimeout = 30 * time.Second
	// openAttempt bounds one attempt to open a stream.
	openAttempt = 5 * time.Second
	// CallTimeout bounds one call, with its retries.
	CallTimeout = 10 * time.Second
	// reconnectWait is the time between attempts to connect again.
	reconnectWait = 250 * time.Millisecond
	// pingInterval and maxPings notice a server that does not answer: after at most their product.
	pingInterval = 5 * time.Second
	maxPings     = 2
)

// Config configures a store.
type Config struct {
	// URL is one or several URLs of NATS servers with commas in between.
	URL string
	// Cluster is the prefix of all names: up to 32 letters, digits and hyphens. The default is "copilot".
	Cluster string
	// Replicas is the number of servers that keep each stream: 1, 3 or 5. The default is 3, or 1 on a single server.
	Replicas int
	// Credentials is the path of a file with credentials; empty for none, or if URL has them.
	Credentials string
	// CA is the path of a PEM file with the CAs of the servers; empty for the CAs of the machine.
	CA string
	// TLS configures TLS. With nil, URLs with the scheme tls use CA.
	TLS *tls.Config
	// Unsafe accepts servers that can lose acknowledged messages, with a warning.
	Unsafe bool
	// InProcess connects to a server in this process; URL is then ignored.
	InProcess nats.InProcessConnProvider
	// Logger receives warnings and changes of the connection; nil discards them.
	Logger *slog.Logger
}

// Store is a connection to the cluster's storage. Call Open to make one. It is safe for concurrent use.
type Store struct {
	names    names
	log      *slog.Logger
	nc       *nats.Conn
	js       jetstream.JetStream
	replicas int
	recipe   Recipe
	violated *violation

	// base ends with Close.
	base context.Context
	end  context.CancelFunc

	sessions jetstream.Stream
	requests jetstream.Stream
	usage    jetstream.Stream
}

// Open connects to the servers, checks them, and creates the streams that are missing. It changes no stream that
// exists. It returns an *OpenError. The caller must Close the store after everything that uses it.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	ctx, stop := context.WithTimeout(ctx, openTimeout)
	defer stop()
	return open(ctx, stop, cfg, (*Store).openStreams)
}

// Check connects to the servers and checks them, as Open does, and changes nothing. It returns an *OpenError.
func Check(ctx context.Context, cfg Config) (Recipe, error) {
	ctx, stop := context.WithTimeout(ctx, openTimeout)
	defer stop()
	s, err := open(ctx, stop, cfg, func(*Store, context.Context) error { return nil })
	if err != nil {
		return Recipe{}, err
	}
	s.Close()
	return s.recipe, nil
}

// open connects to the servers, checks them, and calls then. stop ends ctx.
func open(
	ctx context.Context, stop context.CancelFunc, cfg Config, then func(*Store, context.Context) error,
) (*Store, error) {
	if cfg.Cluster == "" {
		cfg.Cluster = "copilot"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Store{names: names{cfg.Cluster}, log: cfg.Logger, violated: &violation{stop: stop}}
	s.base, s.end = context.WithCancel(context.Background())
	if err := s.connect(cfg); err != nil {
		s.end()
		return nil, err
	}
	err := s.check(ctx, cfg)
	if err == nil {
		err = then(s, ctx)
	}
	if err != nil {
		s.Close()
		return nil, s.explain(err)
	}
	return s, nil
}

// validate checks what no server is needed for.
func (c *Config) validate() error {
	wrong := func(format string, args ...any) error {
		return &OpenError{Detail: fmt.Sprintf(format, args...)}
	}
	if !clusterName.MatchString(c.Cluster) {
		return wrong("the name of the cluster %q must have 1 to 32 letters, digits or hyphens", c.Cluster)
	}
	if c.Replicas != 0 && c.Replicas != 1 && c.Replicas != 3 && c.Replicas != 5 {
		return wrong("%d replicas: use 1, 3 or 5", c.Replicas)
	}
	if c.Credentials != "" {
		text, err := os.ReadFile(c.Credentials)
		if err != nil {
			return &OpenError{Detail: "the file with the credentials cannot be read", Err: err}
		}
		if _, err := nkeys.ParseDecoratedUserNKey(text); err != nil { // the error may have a part of the file
			return wrong("the file %q has no credentials of a user", c.Credentials)
		}
	}
	if c.InProcess != nil {
		return nil
	}
	if strings.TrimSpace(c.URL) == "" {
		return wrong("the URL of the NATS servers is missing")
	}
	for _, text := range strings.Split(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil || u.Host == "" { // the error has the text, which may have a password
			return wrong("the URL of a NATS server cannot be parsed: use nats://HOST:PORT or tls://HOST:PORT")
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return wrong("the URL of a NATS server has the scheme %q: use nats or tls", u.Scheme)
		}
	}
	return nil
}

// connect opens the connection. It does not buffer writes while the servers are away: a write that was refused to its
// caller must not arrive later.
func (s *Store) connect(cfg Config) error {
	options := []nats.Option{
		nats.Name("copilot-grpc " + cfg.Cluster), nats.Timeout(connectTimeout), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectBufSize(-1), nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPings),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				s.log.Warn("the connection to NATS was lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			s.log.Info("connected to NATS again",
				"server", nc.ConnectedServerName(), "version", nc.ConnectedServerVersion())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { s.onError(err) }),
	}
	if cfg.Credentials != "" {
		options = append(options, nats.UserCredentials(cfg.Credentials))
	}
	if cfg.CA != "" {
		options = append(options, nats.RootCAs(cfg.CA))
	}
	if cfg.TLS != nil {
		options = append(options, nats.Secure(cfg.TLS))
	}
	if cfg.InProcess != nil {
		options = append(options, nats.InProcessServer(cfg.InProcess))
	}
	nc, err := nats.Connect(cfg.URL, options...)
	if err != nil {
		detail := "no connection to " + redacted(cfg.URL)
		if isDenied(err) {
			detail = "the credentials are refused by " + redacted(cfg.URL)
		}
		return &OpenError{Detail: detail, Err: err}
	}
	s.nc = nc
	if s.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(CallTimeout)); err != nil {
		nc.Close()
		return &OpenError{Detail: "the client of JetStream cannot be made", Err: err}
	}
	return nil
}

// redacted returns the hosts of URLs.
func redacted(urls string) string {
	var hosts []string
	for _, text := range strings.Split(urls, ",") {
		if u, err := url.Parse(strings.TrimSpace(text)); err == nil && u.Host != "" {
			hosts = append(hosts, u.Host)
		}
	}
	return strings.Join(hosts, ", ")
}

// openStreams opens the streams, and creates missing ones.
//
// The server removes a request when it expires. Logs and snapshots are read from any server: package jsapi notices a
// server that is behind. The sequence numbers of one stream are the epochs. It begins with the time in milliseconds, so
// that epochs grow also after the stream was lost, and are later than the epochs of data directories, which are such
// times.
func (s *Store) openStreams(ctx context.Context) error {
	for _, one := range []struct {
		kind   string
		stream *jetstream.Stream
		config jetstream.StreamConfig
	}{
		{"session", &s.sessions, jetstream.StreamConfig{Description: "saved state and unfinished prompts of sessions",
			Discard: jetstream.DiscardNew, AllowRollup: true, AllowMsgTTL: true}},
		{"log", new(jetstream.Stream), jetstream.StreamConfig{Description: "logs of sessions",
			Discard: jetstream.DiscardNew, AllowDirect: true}},
		{"blob", new(jetstream.Stream), jetstream.StreamConfig{Description: "snapshots of the CLI's folders",
			Discard: jetstream.DiscardNew, AllowDirect: true}},
		{"request", &s.requests, jetstream.StreamConfig{Description: "requests that may arrive again, and their answers",
			Discard: jetstream.DiscardNew, AllowRollup: true, AllowMsgTTL: true}},
		{"usage", &s.usage, jetstream.StreamConfig{Description: "usage of deleted sessions",
			Discard: jetstream.DiscardNew, AllowRollup: true}},
		{"epoch", new(jetstream.Stream), jetstream.StreamConfig{Description: "epochs of journals",
			Subjects: []string{s.names.subject("epoch")}, MaxMsgs: 1, FirstSeq: uint64(time.Now().UnixMilli())}},
	} {
		one.config.Name = s.names.stream(one.kind)
		if one.config.Subjects == nil {
			one.config.Subjects = []string{s.names.subject(one.kind, ">")}
		}
		var err error
		if *one.stream, err = s.openStream(ctx, one.config); err != nil {
			return err
		}
	}
	return nil
}

// JetStream returns JetStream on the store's connection. It ends with Close.
func (s *Store) JetStream() jetstream.JetStream { return s.js }

// Cluster returns the prefix of all names.
func (s *Store) Cluster() string { return s.names.cluster }

// Replicas returns the number of servers that keep each stream.
func (s *Store) Replicas() int { return s.replicas }

// Close ends the connection. Calls under way fail.
func (s *Store) Close() {
	s.end()
	s.nc.Close()
}

// call returns a context that ends with ctx, with the store, or after CallTimeout.
func (s *Store) call(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	stop := context.AfterFunc(s.base, cancel)
	return ctx, func() { stop(); cancel() }
}

// violation is the last permission that the server refused. It is safe for concurrent use.
type violation struct {
	stop context.CancelFunc // ends Open, which would wait for an answer

	mu  sync.Mutex
	err error
}

func (v *violation) set(err error) {
	v.mu.Lock()
	v.err = err
	v.mu.Unlock()
	v.stop()
}

func (v *violation) get() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// onError is called by the client for errors that belong to no call. The server reports a missing permission in this
// way alone; the call itself times out.
func (s *Store) onError(err error) {
	if strings.Contains(err.Error(), settingsSubject) {
		return // the check of the settings is optional
	}
	if errors.Is(err, nats.ErrPermissionViolation) {
		s.violated.set(err)
	}
	s.log.Warn("NATS reported an error", "error", err)
}

// explain returns an error of open as an *OpenError.
func (s *Store) explain(err error) error {
	detail := "a call failed"
	if open, ok := errors.AsType[*OpenError](err); ok {
		if open.Err == nil {
			return err // no call has failed
		}
		detail, err = open.Detail, open.Err
	}
	if denied := s.violated.get(); denied != nil {
		return &OpenError{Detail: detail + ", because a permission is missing", Err: denied}
	}
	return &OpenError{Detail: detail, Err: err}
}
