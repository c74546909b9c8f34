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
