package forward

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

const (
	// maxAttempts bounds how often a call is located, firstPause is the time before the second attempt; each later one
	// is twice as long. A takeover can take longer: the client then tries again after retryAfter.
	maxAttempts = 4
	firstPause  = 50 * time.Millisecond
	retryAfter  = time.Second
)

// Config configures the connections of a replica with the others.
type Config struct {
	// Node is the replica's name.
	Node string
	// Listen is the TCP port for other replicas, "HOST:PORT". It may be on any network, because it requires
	// certificates.
	Listen string
	// TLS has the replica's certificate and the replicas' CAs.
	TLS TLS
	// Locator knows the owners of sessions.
	Locator Locator
}

// Validate returns an error if a field is missing.
func (c *Config) Validate() error {
	switch {
	case c.Node == "":
		return errors.New("a replica needs a name")
	case c.Listen == "":
		return errors.New("a replica needs an address for other replicas")
	case c.TLS.CertFile == "" || c.TLS.KeyFile == "" || c.TLS.CAFile == "":
		return errors.New("a replica needs a certificate, a key and the replicas' CA")
	case c.Locator == nil:
		return errors.New("a replica needs a Locator")
	}
	return nil
}

// Forwarder relays calls to the replicas that have their sessions. It is safe for concurrent use.
type Forwarder struct {
	node    string
	locator Locator
	peers   peers
	streams streams
	log     *slog.Logger
}

// New returns a Forwarder, which the caller must close.
func New(c *Config, creds *Credentials, log *slog.Logger) *Forwarder {
	return &Forwarder{node: c.Node, locator: c.Locator, log: log,
		peers: peers{creds: creds.Dialer(), alive: c.Locator.Peers}}
}

// Drain ends the relayed streams with DRAINING, and refuses new ones. Other relayed calls continue.
func (f *Forwarder) Drain() { f.streams.drain() }

// Close closes the connections to other replicas, which ends all relayed calls.
func (f *Forwarder) Close() { f.peers.close() }

// Unary serves a unary call here, by local, or relays it.
func (f *Forwarder) Unary(ctx context.Context, method string, request any, local grpc.UnaryHandler) (
	reply any, err error,
) {
	here := func() error {
		reply, err = local(ctx, request)
		return err
	}
	ids := SessionsOf(request)
	if len(ids) == 0 {
		if reply, known, err := f.everywhere(ctx, method, request, local); known {
			return reply, err
		}
		f.name(ctx, "")
		return local(ctx, request)
	}
	err = f.place(ctx, ids[0], here, func(owner Owner) (began bool, err error) {
		reply, began, err = f.relayUnary(ctx, owner, method, request, ids[0])
		return began, err
	})
	return reply, err
}

// name sets the header that names this replica as the owner of what a call used. A caller's name of a shared session
// gets none: otherwise callers could learn which sessions of other tenants exist.
func (f *Forwarder) name(ctx context.Context, session string) {
	if !foreign(session) {
		_ = grpc.SetHeader(ctx, metadata.Pairs(HeaderOwner, f.node)) // it fails only outside of a call
	}
}

// foreign reports whether a caller's name of a session can be that of a shared one. Session ids contain no slash.
func foreign(session string) bool { return strings.Contains(session, "/") }

// place serves a call about a session here, or relays it to the session's owner. relay reports whether the call may
// have reached the session: it is not repeated then.
func (f *Forwarder) place(ctx context.Context, session string, here func() error,
	relay func(Owner) (began bool, err error),
) error {
	locate, pause := locating(f.locator.Locate), firstPause
	for attempt := 1; ; attempt++ {
		owner, err := f.owner(ctx, locate, session)
		switch {
		case err != nil:
		case owner.Here:
			f.name(ctx, session)
			return here()
		default:
			var began bool
			if began, err = relay(owner); began {
				return err
			}
			f.log.LogAttrs(ctx, slog.LevelDebug, "the owner did not take a call", slog.String("session_id", session),
				slog.String("node", owner.Node), slog.Any("error", err))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil || attempt == maxAttempts || !wait(ctx, pause) {
			return err
		}
		locate, pause = f.locator.Verify, 2*pause
	}
}

// owner returns the owner of a session. A session without an owner is claimed for this replica, which also serves the
// calls about sessions that do not exist.
func (f *Forwarder) owner(
	ctx context.Context, locate locating, session string,
) (Owner, error) {
	tenant := caller.From(ctx).Tenant
	owner, err := locate(ctx, tenant, session)
	if err == nil && !owner.Here && owner.Node == "" {
		owner.Here = true
		err = f.locator.Claim(ctx, tenant, session)
	}
	if err == nil {
		return owner, nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return owner, err
	}
	return owner, fault.Wrap(err, fault.SessionUnavailable, "the owner of the session %q is unknown", session).
		With("session_id", session).WithRetry(retryAfter)
}

// wait waits. It returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// failed returns the error of a relayed call: the owner's status, or why the relay ended. Statuses of the owner have
// details; statuses of the connection have none.
func failed(ctx context.Context, owner Owner, session string, err error) error {
	st := grpcstatus.Convert(err)
	switch {
	case len(st.Proto().GetDetails()) > 0:
		return st.Err()
	case ctx.Err() != nil:
		return ctx.Err()
	case st.Code() == codes.DeadlineExceeded:
		return context.DeadlineExceeded // ctx ends at the same time
	}
	return unreachable(session, "the connection to its replica %q ended (%s)", owner.Node, st.Code())
}
