package forward

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// maxAttempts bounds how often a call is located, firstPause is the time before the second attempt; each later one
	// is twice as long. After patience there is no further attempt, so that a replica that does not answer holds a call
	// for patience and one connectTimeout at most. A takeover can take longer: the client then tries again after
	// retryAfter.
	maxAttempts = 4
	patience    = 2 * time.Second
	firstPause  = 50 * time.Millisecond
	retryAfter  = time.Second
)

// Config configures the connections of a replica with the others.
type Config struct {
	// Node is the replica's name.
	Node string
	// Listen is the TCP port for other replicas, "HOST:PORT". It may be on any network, because it requires
	// certificates. It is "" if there can be no other replica; TLS is not used then.
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
	case c.Listen != "" && (c.TLS.CertFile == "" || c.TLS.KeyFile == "" || c.TLS.CAFile == ""):
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
	// draining ends when the relayed streams have to end.
	draining context.Context //nolint:containedctx // of the replica
	drain    context.CancelFunc
	log      *slog.Logger
}

// New returns a Forwarder, which the caller must close. creds are nil if there can be no other replica.
func New(c *Config, creds *Credentials, log *slog.Logger) *Forwarder {
	f := &Forwarder{node: c.Node, locator: c.Locator, log: log, peers: peers{alive: c.Locator.Peers, log: log}}
	f.draining, f.drain = context.WithCancel(context.Background())
	if creds != nil {
		f.peers.creds = creds.Dialer()
	}
	return f
}

// Drain ends the relayed streams with DRAINING, and refuses new ones. Other relayed calls continue.
func (f *Forwarder) Drain() { f.drain() }

// Close closes the connections to other replicas, which ends all relayed calls.
func (f *Forwarder) Close() { f.peers.close() }

// Unary serves a unary call here, by local, or relays it.
func (f *Forwarder) Unary(ctx context.Context, method string, request any, local grpc.UnaryHandler) (
	reply any, err error,
) {
	here := func(session string) (began bool, err error) {
		reply, err = local(ctx, request)
		if left(ctx, f.locator, session, err) {
			return false, err
		}
		f.name(ctx, session)
		return true, err
	}
	relay := func(owner Owner, session string) (began bool, err error) {
		reply, began, err = f.relayUnary(ctx, owner, method, request, session)
		return began, err
	}
	if to, ok := targetOf(ctx, request); ok {
		err = f.place(ctx, to, here, relay)
		return reply, err
	}
	if reply, known, err := f.everywhere(ctx, method, request, local); known {
		return reply, err
	}
	if peer, other := f.nodeOf(request); other {
		_, err = relay(peer, "")
		return reply, err
	}
	f.name(ctx, "")
	return local(ctx, request)
}

// left reports whether a call failed here because its session has just gone to another replica.
func left(ctx context.Context, l Locator, session string, err error) bool {
	reason := fault.ReasonOf(err)
	if session == "" || err == nil || reason != fault.SessionNotFound && reason != fault.SessionUnavailable {
		return false
	}
	owner, err := l.Verify(ctx, caller.From(ctx).Tenant, session)
	return err == nil && !owner.Here && owner != Owner{}
}

// nodeOf returns the other replica that a call names. A name that no living replica has is for the handler to refuse.
func (f *Forwarder) nodeOf(request any) (peer Owner, other bool) {
	r, ok := request.(*bridgev1.DrainNodeRequest)
	if !ok || r.GetNode() == f.node {
		return Owner{}, false
	}
	peers := f.locator.Peers()
	i := slices.IndexFunc(peers, func(p Owner) bool { return p.Node == r.GetNode() })
	if i < 0 {
		return Owner{}, false
	}
	return peers[i], true
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

// target is what a call is about: a session, "" for one that is to be created without a name, and for a session that is
// to be created the labels that it needs of its replica.
type target struct {
	session string
	labels  map[string]string
}

// place serves a call about a session here, or relays it to the session's owner. here and relay report whether the call
// may have reached the session: it is not repeated then.
func (f *Forwarder) place(ctx context.Context, to target, here func(session string) (began bool, err error),
	relay func(owner Owner, session string) (began bool, err error),
) error {
	session := to.session
	locate, pause := locating(f.locator.Locate), firstPause
	last := time.Now().Add(patience)
	for attempt := 1; ; attempt++ {
		owner, err := f.owner(ctx, locate, to)
		switch {
		case err != nil:
		case owner.Here:
			var began bool
			if began, err = here(session); began {
				return err
			}
		default:
			var began bool
			if began, err = relay(owner, session); began {
				return err
			}
			f.log.LogAttrs(ctx, slog.LevelDebug, "the owner did not take a call", slog.String("session_id", session),
				slog.String("node", owner.Node), slog.Any("error", err))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil || attempt == maxAttempts || time.Now().After(last) || !wait(ctx, pause) {
			return err
		}
		locate, pause = f.locator.Verify, 2*pause
	}
}

// owner returns the owner of a session. A session without an owner is claimed for the replica of new sessions, which
// also serves the calls about sessions that do not exist.
func (f *Forwarder) owner(
	ctx context.Context, locate locating, to target,
) (Owner, error) {
	tenant, session := caller.From(ctx).Tenant, to.session
	if session == "" {
		return f.locator.Place(tenant, "", to.labels)
	}
	owner, err := locate(ctx, tenant, session)
	if err == nil && owner == (Owner{}) {
		if owner, err = f.locator.Place(tenant, session, to.labels); err == nil && owner.Here {
			err = f.locator.Claim(ctx, tenant, session)
		}
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
