package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"strings"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/internal/loopback"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/login"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// gate authenticates and authorizes calls. On a unix socket the operating system has already authenticated: only the
// server's user can connect, and is the host's owner. On TCP every call needs a proof, including health and
// reflection.
type gate struct {
	// token is the digest of the server's token. Digests have equal lengths, so comparing them takes constant time.
	token [sha256.Size]byte
	// policy, if set, replaces the token.
	policy *policy.Store
	// served has the full names of the registered methods. It is set before the first call.
	served map[string]bool
	// logins are the logins of browsers; nil without a listener for them. It is set before the first call.
	logins *login.Store
	// confining refuses host calls while processes have an old confinement.
	confining func(tenant string) error
	// admissions are the calls that the policy has admitted.
	admissions admissions
}

func newGate(c *Config) *gate {
	g := &gate{token: sha256.Sum256([]byte(c.Token)), policy: c.Policy, confining: c.Confining}
	if g.confining == nil {
		g.confining = func(string) error { return nil }
	}
	g.admissions.confining = g.confining
	if g.policy != nil {
		g.policy.OnChange(g.admissions.check)
	}
	return g
}

// errExpired is the cause for the end of a call whose proof expires.
var errExpired = errors.New("the caller's credentials have expired")

// errorExpired returns the error for a caller whose proof has expired.
func errorExpired() error {
	return fault.Wrap(errExpired, fault.Unauthenticated, "the server ended the call")
}

// admit refuses calls without permission, and determines the caller of the others.
func (g *gate) admit(ctx context.Context, c *call) (context.Context, error) {
	if err := forward.Refuse(ctx); err != nil {
		return ctx, err
	}
	now := g.now()
	id, proof, err := g.identify(ctx, now)
	if err != nil {
		return ctx, err
	}
	c.caller = caller.Caller{Name: id.Name()}
	who, err := g.resolve(ctx, id, proof.Login, now)
	if err != nil {
		return ctx, err
	}
	who.Class, who.Peer, who.Identity = policy.Class(c.method), peerOf(ctx), id.Key()
	c.caller = who
	if g.served[c.method] { // the server reports unknown methods itself
		if err := who.Require(who.Class, c.method); err != nil {
			return ctx, err
		}
	}
	if ctx, err = g.enter(ctx, c); err != nil {
		return ctx, err
	}
	if c.method == createWebLink {
		ctx = login.WithCaller(ctx, id, proof)
	}
	c.introduction = &introduction{proof: proof, id: id, who: who}
	if c.stored, err = introduceOn(ctx, c.introduction); err != nil {
		return ctx, err
	}
	return g.follow(ctx, c, now, &admission{introduction: c.introduction})
}

// enter checks the request by the policy, and returns the context of a call by its caller, who has the right to the
// method.
func (g *gate) enter(ctx context.Context, c *call) (_ context.Context, err error) {
	if g.policy != nil {
		if c.check, err = g.checks(c.caller); err != nil {
			return ctx, err
		}
		if err := c.checkRequest(ctx); err != nil {
			return ctx, err
		}
		ctx = g.checkGuest(ctx, c, c.caller)
		if c.check != nil {
			ctx = caller.WithRequestCheck(ctx, c.check)
		}
	}
	return caller.Refer(ctx, &c.caller), nil
}

// follow returns a context that ends when the caller's proof expires or loses its rights, or the login ends.
func (g *gate) follow(ctx context.Context, c *call, now *policy.Policy, a *admission) (_ context.Context, err error) {
	if l := a.proof.Login; l != nil {
		if ctx, err = g.whileLoggedIn(ctx, c, l); err != nil {
			return ctx, err
		}
	}
	if now != nil && a.id.Source != identity.Socket {
		var ended ending
		ctx, ended = g.admissions.under(ctx, g.policy, now, a)
		c.atEnd(ended)
	}
	return g.within(ctx, c, a.id), nil
}

// checks returns the check for the requests of a call; nil if none is required. Requests of callers who may use the
// host are checked too: while processes of the tenant have an old confinement, no request may use the host.
func (g *gate) checks(who caller.Caller) (check func(context.Context, proto.Message) error, err error) {
	switch {
	case !who.May(caller.Host):
		return g.checkFields(who.Tenant), nil
	case who.Tenant == caller.HostTenant:
		return nil, nil
	}
	if changing := g.confining(who.Tenant); changing != nil && who.Class == caller.Host {
		return nil, changing
	}
	fields := g.checkFields(who.Tenant)
	return func(ctx context.Context, m proto.Message) error {
		if changing := g.confining(who.Tenant); changing != nil && fields(ctx, m) != nil {
			return changing
		}
		return nil
	}, nil
}

// now returns the current policy; nil without one.
func (g *gate) now() *policy.Policy {
	if g.policy == nil {
		return nil
	}
	return g.policy.Current()
}

// within returns a context that ends when the caller's proof expires.
func (g *gate) within(ctx context.Context, c *call, id *identity.Identity) context.Context {
	if id.Expires.IsZero() {
		return ctx
	}
	ctx, cancel := context.WithDeadlineCause(ctx, id.Expires, errExpired)
	c.atEnd(func(err error) error {
		defer cancel()
		if err != nil && errors.Is(context.Cause(ctx), errExpired) {
			return errorExpired()
		}
		return err
	})
	return ctx
}

// checkRequest checks the request of a unary call. The handler receives the message that was checked, also if the
// call is later found to be a guest's.
func (c *call) checkRequest(ctx context.Context) error {
	if c.request == nil {
		return nil
	}
	m := c.message()
	if m == nil {
		return fault.New(fault.InvalidField, "the request is malformed")
	}
	if c.check != nil {
		if err := c.check(ctx, m); err != nil {
			return err
		}
	}
	ready, ok := c.request.(codec.Ready)
	if !ok {
		return nil
	}
	// The handler gets what was checked: two parsers may read invalid bytes differently.
	wire, err := proto.Marshal(m)
	if err != nil {
		return fault.New(fault.InvalidField, "the request is malformed")
	}
	ready.TakeWire(wire)
	return nil
}

// checkFields returns the check for requests of a tenant's callers without the rights of the class host.
func (g *gate) checkFields(tenant string) func(context.Context, proto.Message) error {
	return func(ctx context.Context, m proto.Message) error {
		t, ok := g.policy.Current().Tenant(tenant)
		if !ok {
			return fault.New(fault.Forbidden, "the tenant %q no longer exists", tenant)
		}
		return t.CheckFields(ctx, m.ProtoReflect())
	}
}

// resolve returns the caller for an identity. A login determines the tenant and limits the role.
func (g *gate) resolve(ctx context.Context, id *identity.Identity, l *identity.Login, now *policy.Policy) (
	caller.Caller, error,
) {
	who, err := g.resolveTenant(ctx, id, l, now)
	if l != nil {
		who.Role = min(who.Role, l.Role)
	}
	return who, err
}

func (g *gate) resolveTenant(ctx context.Context, id *identity.Identity, l *identity.Login, now *policy.Policy) (
	caller.Caller, error,
) {
	if id.Source == identity.Socket || id.Source == identity.ServerToken {
		return caller.Caller{Tenant: caller.HostTenant, Name: id.Name(), Role: caller.Admin}, nil
	}
	wanted := metadata.ValueFromIncomingContext(ctx, policy.MetadataTenant)
	if len(wanted) > 1 {
		return caller.Caller{}, fault.New(fault.Forbidden, "the metadata %q occurs %d times: send it once",
			policy.MetadataTenant, len(wanted))
	}
	tenant := strings.Join(wanted, "")
	if l != nil && tenant != "" && tenant != l.Tenant {
		return caller.Caller{}, fault.New(fault.Forbidden, "the login is for the tenant %q, not %q", l.Tenant, tenant)
	}
	if l != nil {
		tenant = l.Tenant
	}
	return now.Resolve(id, tenant)
}

// identify authenticates a call.
func (g *gate) identify(ctx context.Context, now *policy.Policy) (*identity.Identity, identity.Proof, error) {
	var proof identity.Proof
	p, ok := peer.FromContext(ctx)
	if ok && p.Addr.Network() == "unix" {
		return &identity.Identity{Source: identity.Socket}, proof, nil
	}
	secured := false
	if ok {
		on, shown := connectionOf(p)
		proof.Mesh = on != nil && on.mesh
		var info credentials.TLSInfo
		if info, secured = shown.(credentials.TLSInfo); secured {
			proof.Chain = verified(info)
		}
		if len(proof.Chain) > 0 {
			proof.Certificate = proof.Chain[0]
			proof.Forwarded = metadata.ValueFromIncomingContext(ctx, identity.MetadataForwarded)
		}
	}
	if err := checkOrigin(ctx, secured && now != nil); err != nil {
		return nil, proof, err
	}
	if bearers := metadata.ValueFromIncomingContext(ctx, "authorization"); len(bearers) > 1 {
		return nil, proof, fault.New(fault.Unauthenticated,
			"the metadata \"authorization\" occurs %d times: send it once", len(bearers))
	} else if len(bearers) == 1 {
		bearer, err := auth.AuthFromMD(ctx, "bearer")
		if err != nil {
			return nil, proof, noToken()
		}
		proof.Bearer = bearer
	} else if l := loginOf(ctx); l != nil {
		proof = identity.Proof{Login: l}
		id, err := g.identifyLogin(l, now)
		return id, proof, err
	}
	if now != nil {
		id, err := now.Authenticate(ctx, proof)
		if id != nil && id.Proxy == "" {
			proof.Forwarded = nil // text of any caller, which proves nothing
		}
		return id, proof, err
	}
	return &identity.Identity{Source: identity.ServerToken}, proof, g.checkToken(proof.Bearer)
}

// verified returns the verified chain of the client certificate; nil if there is none.
func verified(info credentials.TLSInfo) []*x509.Certificate {
	if len(info.State.VerifiedChains) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0]
}

// checkOrigin refuses calls that a web page may have sent. A page can make a browser connect to the loopback address
// by a host name that the page's owner controls, so only fixed local names are accepted, and calls with an origin are
// refused. A server with TLS and identities may have any name, because pages do not have its callers' proofs.
func checkOrigin(ctx context.Context, anyName bool) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md.Get("origin")) > 0 {
		return fault.New(fault.Forbidden, "calls from web pages are not allowed")
	}
	authority := md.Get(":authority")
	if !anyName && (len(authority) != 1 || !loopback.Authority(authority[0])) {
		return fault.New(fault.Forbidden, "the authority must be localhost, 127.0.0.1 or [::1], not %q",
			strings.Join(authority, ","))
	}
	return nil
}

// checkToken refuses calls without the server's token.
func (g *gate) checkToken(token string) error {
	if token == "" {
		return noToken()
	}
	if sent := sha256.Sum256([]byte(token)); subtle.ConstantTimeCompare(sent[:], g.token[:]) != 1 {
		return fault.New(fault.Unauthenticated, "wrong token")
	}
	return nil
}

func noToken() error {
	return fault.New(fault.Unauthenticated, "the call needs the metadata %q with the server's token",
		"authorization: Bearer TOKEN")
}
