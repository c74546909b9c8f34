package server

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// introducing is a connection of a proxy, whose checks of certificates are counted.
func introducing() (c *connection, checks *int) {
	table := newConnections(&Config{Logger: slog.New(slog.DiscardHandler)})
	checks = new(int)
	table.trusted = func(identity.Proof) error {
		*checks++
		return nil
	}
	return newConnection(table, nil), checks
}

// through is the introduction of a caller, with the header that its proxy sends.
func through(name, header string) *introduction {
	return &introduction{id: &identity.Identity{Source: identity.Certificate, SPIFFE: name},
		proof: identity.Proof{Forwarded: []string{header}}, who: caller.Caller{Tenant: "acme", Name: name}}
}

// Callers who take turns on a connection are verified once each, and not all of them with each call.
func TestIntroductionsTakeTurns(t *testing.T) {
	t.Parallel()
	c, checks := introducing()
	for i := range 100 {
		name := fmt.Sprint("caller-", i%maxIntroduced)
		in, err := c.introduce(through(name, "URI="+name))
		if err != nil {
			t.Fatal(err)
		}
		in.leave()
	}
	if len(c.introduced) != maxIntroduced || *checks != maxIntroduced {
		t.Errorf("%d introductions were checked %d times", len(c.introduced), *checks)
	}
}

// A caller takes one place, whatever its header has before the proxy's element, and none from a caller with a call.
func TestIntroductionsWithCallsStay(t *testing.T) {
	t.Parallel()
	c, _ := introducing()
	var calls []*introduction
	for i := range 2 * maxIntroduced {
		name := fmt.Sprint("caller-", i)
		in, err := c.introduce(through(name, "URI="+name))
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, in)
	}
	for i := range 2 * maxIntroduced {
		in, err := c.introduce(through("other", fmt.Sprintf("By=%d,URI=other", i)))
		if err != nil {
			t.Fatal(err)
		}
		in.leave()
	}
	if n := len(c.introduced); n != 2*maxIntroduced+1 {
		t.Errorf("with calls: %d introductions", n)
	}
	for _, in := range calls {
		in.leave()
	}
	if _, err := c.introduce(through("last", "URI=last")); err != nil || len(c.introduced) != maxIntroduced {
		t.Errorf("after the calls: %d introductions, %v", len(c.introduced), err)
	}
}

// A call has the proof of an introduction if its headers and its login prove the same caller.
func TestProvedBy(t *testing.T) {
	t.Parallel()
	const header = identity.MetadataForwarded
	proxied, bearer := through("a", "URI=a"), through("b", "")
	proxied.id.Proxy = "envoy"
	bearer.proof = identity.Proof{Bearer: "secret"}
	direct, logged, host := through("c", ""), through("d", ""), through("e", "")
	direct.proof, host.proof, host.who.Tenant = identity.Proof{}, identity.Proof{}, caller.HostTenant
	logged.proof = identity.Proof{Login: &identity.Login{ID: "l"}}
	for name, tc := range map[string]struct {
		by    *introduction
		login string
		md    metadata.MD
		want  bool
	}{
		"the header of the proxy": {proxied, "", metadata.Pairs(header, "URI=a"), true},
		"another header":          {proxied, "", metadata.Pairs(header, "URI=b"), false},
		"no header":               {proxied, "", nil, false},
		"the header twice":        {proxied, "", metadata.Pairs(header, "URI=a", header, "URI=a"), false},
		"a token and the header":  {proxied, "", metadata.Pairs(header, "URI=a", "authorization", "Bearer x"), false},
		"a login and the header":  {proxied, "l", metadata.Pairs(header, "URI=a"), false},
		"the token":               {bearer, "", metadata.Pairs("authorization", "bearer secret"), true},
		"the token, and a header": {bearer, "", metadata.Pairs("authorization", "Bearer secret", header, "URI=b"), true},
		"another token":           {bearer, "", metadata.Pairs("authorization", "Bearer other"), false},
		"another scheme":          {bearer, "", metadata.Pairs("authorization", "Basic secret"), false},
		"two tokens": {bearer, "",
			metadata.Pairs("authorization", "Bearer secret", "authorization", ""), false},
		"no token":                 {bearer, "", nil, false},
		"the certificate":          {direct, "", metadata.Pairs(header, "URI=b"), true},
		"the certificate and more": {direct, "", metadata.Pairs("authorization", "Bearer x"), false},
		"the login":                {logged, "l", nil, true},
		"another login":            {logged, "m", nil, false},
		"no login":                 {logged, "", nil, false},
		"its tenant":               {direct, "", metadata.Pairs(policy.MetadataTenant, "acme"), true},
		"another tenant":           {direct, "", metadata.Pairs(policy.MetadataTenant, "rival"), false},
		"the tenant of the host":   {host, "", metadata.Pairs(policy.MetadataTenant, "host"), true},
		"two tenants": {direct, "",
			metadata.Pairs(policy.MetadataTenant, "acme", policy.MetadataTenant, "acme"), false},
	} {
		var l *identity.Login
		if tc.login != "" {
			l = &identity.Login{ID: tc.login}
		}
		if got := tc.by.provedBy(l, tc.md); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The header of a caller who is no proxy is not stored.
func TestForwardedOfCallers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policy")
	text := `version: 1
identity: {certificates: true, proxies: [{spiffe: 'spiffe://corp/envoy'}]}
tenants: {acme: {members: [{spiffe: 'spiffe://corp/a', role: owner}]}}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := policy.Open(path, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	g := newGate(&Config{Policy: store})
	for spiffe, stored := range map[string]int{"spiffe://corp/envoy": 1, "spiffe://corp/a": 0} {
		u, err := url.Parse(spiffe)
		if err != nil {
			t.Fatal(err)
		}
		info := credentials.TLSInfo{}
		info.State.VerifiedChains = [][]*x509.Certificate{{{URIs: []*url.URL{u}, NotAfter: time.Now().Add(time.Hour)}}}
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}, AuthInfo: info})
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(identity.MetadataForwarded, "URI=spiffe://corp/a"))
		_, proof, err := g.identify(ctx, g.now())
		if err != nil || len(proof.Forwarded) != stored {
			t.Errorf("%s: %q, %v", spiffe, proof.Forwarded, err)
		}
	}
}
