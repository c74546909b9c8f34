package server

import (
	"context"
	"encoding/base64"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/server/h2"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/login"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

// maxIntroduced bounds the callers without calls that are stored for one connection: a proxy may have many. The
// connection stays open while one of the last ones, or one with calls in progress, is trusted.
const maxIntroduced = 16

// introduction is a proof that came on a connection, and the caller that it identified.
type introduction struct {
	proof identity.Proof
	id    *identity.Identity
	who   caller.Caller
	// calls counts the calls in progress that the connection stores it for.
	calls atomic.Int64
	// payer is its caller as the one who pays for calls; nil before the first one.
	payer atomic.Pointer[payer]
}

// leave ends a call of an introduction that introduce has returned; nil does nothing.
func (i *introduction) leave() {
	if i != nil {
		i.calls.Add(-1)
	}
}

func (i *introduction) key() callerKey {
	return callerKey{i.who.Tenant, string(i.id.Source), i.who.Name}
}

// equal reports whether two introductions are the same for policies, limits and the time.
func (i *introduction) equal(other *introduction) bool {
	return i.same(other) && i.key() == other.key() && i.id.Expires.Equal(other.id.Expires)
}

// same reports whether a proof equals that of an introduction.
func (i *introduction) same(other *introduction) bool {
	return i.proof.Bearer == other.proof.Bearer && i.proof.Certificate == other.proof.Certificate &&
		i.loginID() == other.loginID() && i.who.Tenant == other.who.Tenant &&
		slices.Equal(i.proof.Forwarded, other.proof.Forwarded)
}

// loginID returns the ID of the browser's login; "" if there is none.
func (i *introduction) loginID() string {
	if i.proof.Login == nil {
		return ""
	}
	return i.proof.Login.ID
}

// introduce records that a call on the connection was authenticated. Its caller pays for the connection from then on.
// It returns the stored introduction, whose leave the caller must call when the call ends. An error reports that a new
// connection exceeds a limit.
func (c *connection) introduce(i *introduction) (*introduction, error) {
	if last := c.latest.Load(); last != nil && last.same(i) {
		last.calls.Add(1)
		if c.latest.Load() == last { // so the connection still stores it
			return last, nil
		}
		last.leave()
	}
	stored, err := c.remember(i)
	if err != nil {
		return nil, err
	}
	if stored == i {
		c.drop(nil, []*introduction{i}) // the policy may have changed since the check
	}
	return stored, nil
}

// remember stores an introduction for a call. It returns the one that it has stored before if that is equal: changes of
// the policy concern that one too.
func (c *connection) remember(i *introduction) (*introduction, error) {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	i.calls.Store(1)
	if c.gone {
		return i, nil // the call ends with it
	}
	if c.use == nil {
		if err := c.table.own(c, i.key(), false); err != nil {
			return nil, err
		}
	} else {
		c.moveTo(i, false) // a proxy has many callers; the last one pays
	}
	if at := slices.IndexFunc(c.introduced, i.equal); at >= 0 {
		i = c.introduced[at]
		i.calls.Add(1)
		c.introduced = slices.Delete(c.introduced, at, at+1)
	}
	c.forget(i)
	c.introduced = append(c.introduced, i)
	c.latest.Store(i)
	c.known.Store(true)
	c.table.known(c)
	c.expireLater()
	return i, nil
}

// forget removes the introductions without calls that a newer one replaces: those of the same caller, and the oldest
// above maxIntroduced. The caller holds the table's mu.
func (c *connection) forget(by *introduction) {
	excess := len(c.introduced) + 1 - maxIntroduced
	c.introduced = slices.DeleteFunc(c.introduced, func(other *introduction) bool {
		// The same caller has a newer token, or its proxy a newer header.
		replaced := other.same(by) ||
			other.key() == by.key() && (other.proof.Bearer != "" || other.proof.Forwarded != nil)
		if other.calls.Load() > 0 || !replaced && excess <= 0 {
			return false
		}
		excess--
		return true
	})
}

// expireLater schedules a check when the next proof on the connection expires. The caller holds the table's mu.
func (c *connection) expireLater() {
	if c.expiry != nil {
		c.expiry.Stop()
		c.expiry = nil
	}
	var next time.Time
	for _, i := range c.introduced {
		if at := i.id.Expires; !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if !next.IsZero() {
		c.expiry = time.AfterFunc(max(time.Until(next), 0)+time.Millisecond, func() {
			c.recheck(nil)
		})
	}
}

// recheck drops introductions that are no longer valid: by a new policy, unless it is nil, by revocation, or by
// expiry. If none is left, it closes the connection.
func (c *connection) recheck(p *policy.Policy) {
	c.table.mu.Lock()
	all := slices.Clone(c.introduced)
	c.table.mu.Unlock()
	c.drop(p, all)
}

// drop is recheck for some introductions.
func (c *connection) drop(p *policy.Policy, of []*introduction) {
	if p == nil && c.table.policy != nil {
		p = c.table.policy.Current()
	}
	lost := map[*introduction]error{}
	for _, i := range of {
		if _, err := i.holds(p, c.table.trusted); err != nil {
			lost[i] = err
		}
	}
	if len(lost) == 0 {
		return
	}
	c.table.mu.Lock()
	if c.gone || len(c.introduced) == 0 {
		c.table.mu.Unlock()
		return
	}
	var why error
	c.introduced = slices.DeleteFunc(c.introduced, func(i *introduction) bool {
		if lost[i] != nil {
			why = lost[i]
		}
		return lost[i] != nil
	})
	c.latest.Store(nil)
	if len(c.introduced) > 0 {
		c.moveTo(c.introduced[0], true)
		c.expireLater()
		c.table.mu.Unlock()
		return
	}
	who := c.key()
	c.table.remove(c)
	c.table.mu.Unlock()
	c.table.log.Info("connection closed: its callers are no longer trusted", slog.String("tenant", who.tenant),
		slog.String("caller", who.name))
	flush := revokeFlush
	if c.calls.all.Load() == 0 {
		flush = shedFlush // there are no calls whose end must be reported
	}
	st, _ := status.Of(why)
	c.table.dismiss(c, false, flush, st.Message())
}

// moveTo makes another caller pay for the connection, unless that caller has too many; force ignores that limit. The
// caller holds the table's mu.
func (c *connection) moveTo(i *introduction, force bool) {
	before := c.use
	if before != nil && before.key == i.key() {
		return
	}
	c.table.disown(c)
	if err := c.table.own(c, i.key(), force); err != nil && before != nil {
		_ = c.table.own(c, before.key, true)
	}
}

// holds returns the caller by a policy, or an error if the introduction is no longer valid.
func (i *introduction) holds(p *policy.Policy, trusted func(identity.Proof) error) (caller.Caller, error) {
	if at := i.id.Expires; !at.IsZero() && !time.Now().Before(at) {
		return caller.Caller{}, errorExpired()
	}
	if trusted != nil {
		if err := trusted(i.proof); err != nil {
			return caller.Caller{}, err
		}
	}
	if p == nil {
		return i.who, nil
	}
	id, err := p.Believe(i.proof, i.id)
	if err != nil {
		return caller.Caller{}, err
	}
	return p.Resolve(id, login.TenantName(i.who.Tenant))
}

// streamKey is the context key of a call's stream.
type streamKey struct{}

// streamOf returns the stream of a call; nil if it is not over TCP.
func streamOf(ctx context.Context) *h2.Stream {
	s, _ := ctx.Value(streamKey{}).(*h2.Stream)
	return s
}

// greet processes the headers of calls: it finds the call's stream and who pays for it before a possibly long request
// arrives. It refuses only calls that exceed a limit. A call without proof is refused later, with a more precise
// status.
func (g *gate) greet(ctx context.Context, info *tap.Info) (context.Context, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	on, _ := connectionOf(p)
	if on == nil {
		return ctx, nil
	}
	stream := on.stream()
	if err := stream.Open(sizeOf(info.Header), g.payer(ctx, on, info.Header)); err != nil {
		st, _ := status.Of(err)
		return ctx, st.Err()
	}
	return context.WithValue(ctx, streamKey{}, stream), nil
}

// payer returns who pays for a call: its caller, whom it authenticates unless the connection has stored the proof, or
// the connection's stranger. Only the connection's own client waits for it.
func (g *gate) payer(ctx context.Context, on *connection, header metadata.MD) *payer {
	if i := on.introducedBy(loginOf(ctx), header); i != nil {
		return on.payer(i)
	}
	now := g.now()
	id, proof, err := g.identify(ctx, now)
	if err != nil {
		return &on.stranger
	}
	who, err := g.resolve(ctx, id, proof.Login, now)
	if err != nil {
		return &on.stranger
	}
	i, err := on.introduce(&introduction{proof: proof, id: id, who: who})
	if err != nil {
		return &on.stranger // the error is reported when the call is admitted
	}
	defer i.leave()
	return on.payer(i)
}

// introducedBy returns the introduction whose proof comes with a call's headers and login; nil if there is none.
func (c *connection) introducedBy(l *identity.Login, header metadata.MD) *introduction {
	if last := c.latest.Load(); last == nil || last.provedBy(l, header) {
		return last
	}
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	for _, i := range c.introduced {
		if i.provedBy(l, header) {
			return i
		}
	}
	return nil
}

// provedBy reports whether a call on the same connection has the introduction's proof.
func (i *introduction) provedBy(l *identity.Login, header metadata.MD) bool {
	bearers, tenants := header["authorization"], header[policy.MetadataTenant]
	switch {
	case len(tenants) > 1 || len(tenants) == 1 && tenants[0] != "" && tenants[0] != login.TenantName(i.who.Tenant):
		return false
	case i.proof.Bearer != "":
		scheme, token, _ := strings.Cut(strings.Join(bearers, "\n"), " ")
		return strings.EqualFold(scheme, "bearer") && token == i.proof.Bearer
	case len(bearers) > 0:
		return false
	case i.proof.Login != nil || l != nil:
		return i.proof.Login != nil && l != nil && i.proof.Login.ID == l.ID
	}
	return i.id.Proxy == "" || slices.Equal(i.proof.Forwarded, header[identity.MetadataForwarded])
}

// payer returns the caller of an introduction as the one who pays.
func (c *connection) payer(i *introduction) *payer {
	if p := i.payer.Load(); p != nil && !p.use.swept.Load() {
		return p
	}
	p := &payer{on: c, use: c.table.useOf(i.key())}
	i.payer.Store(p)
	return p
}

// fieldOverhead is the cost of a header in addition to its name and value, as HTTP/2 defines it.
const fieldOverhead = 32

// sizeOf returns the memory used by headers.
func sizeOf(headers metadata.MD) (bytes int) {
	for name, values := range headers {
		for _, value := range values {
			bytes += len(name) + len(value) + fieldOverhead
		}
	}
	return bytes
}

// introduceOn records the caller of a call on its connection, which must be permitted for the caller. It returns what
// the connection stores; nil on a unix socket.
func introduceOn(ctx context.Context, i *introduction) (*introduction, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, nil
	}
	on, _ := connectionOf(p)
	if on == nil {
		return nil, nil
	}
	return on.introduce(i)
}

// trailersOf returns the trailers of a call that is refused before gRPC has its request.
func trailersOf(err error) []hpack.HeaderField {
	st, _ := status.Of(err)
	fields := []hpack.HeaderField{
		{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"},
		{Name: "grpc-status", Value: strconv.Itoa(int(st.Code()))},
		{Name: "grpc-message", Value: url.PathEscape(st.Message())},
		{Name: status.TrailerReason, Value: status.Reason(st)},
	}
	if details, err := proto.Marshal(st.Proto()); err == nil {
		fields = append(fields,
			hpack.HeaderField{Name: "grpc-status-details-bin", Value: base64.RawStdEncoding.EncodeToString(details)})
	}
	return fields
}
