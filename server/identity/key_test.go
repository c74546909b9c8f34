package identity_test

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/server/identity"
)

// Identities with the same name in logs have different keys, for all kinds of proof.
func TestKeysTellIdentitiesApart(t *testing.T) {
	t.Parallel()
	seen := map[string]identity.Identity{}
	for _, id := range []identity.Identity{
		{Source: identity.StaticToken, Token: "build"},
		{Source: identity.JWT, Issuer: "https://one", Subject: "build"},
		{Source: identity.JWT, Issuer: "https://two", Subject: "build"},
		{Source: identity.Certificate, CommonName: "build"},
		{Source: identity.Certificate, DNS: []string{"build"}},
		{Source: identity.Certificate, SPIFFE: "build"},
		{Source: identity.Certificate, SPIFFE: "build", DNS: []string{"a"}},
		{Source: identity.Socket}, {Source: identity.ServerToken},
	} {
		if other, ok := seen[id.Key()]; ok {
			t.Errorf("%+v and %+v have the same key", id, other)
		}
		seen[id.Key()] = id
	}
}
