package identity

import (
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
)

// Login is a login at the listener for browsers: an identity that was proved once, and that a cookie proves from then
// on. It contains no secrets: the cookie and the token are digests. It is immutable.
type Login struct {
	// ID is the SHA-256 of the cookie, in hexadecimal.
	ID string `json:"id"`
	// Method is how the browser logged in: "link", "token" or "oidc".
	Method string `json:"method"`
	// Identity is the identity. A link has that of its creator.
	Identity Identity `json:"identity"`
	// Ancestors are the IDs of the logins from which this one descends by links, the nearest first: of the login that
	// created the link, and of its ancestors. The login ends with each of them.
	Ancestors []string `json:"ancestors,omitempty"`
	// Digest is the SHA-256 of the static token or server token that proved the identity, in hexadecimal; "" for other
	// sources.
	Digest string `json:"digest,omitempty"`
	// Tenant is the tenant by its name in the policy. Role is the highest role.
	Tenant string      `json:"tenant"`
	Role   caller.Role `json:"role"`
	// Created and Expires are the times between which the cookie is valid.
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
}

// DescendsFrom reports whether the login ends with the login of an ID.
func (l *Login) DescendsFrom(id string) bool { return slices.Contains(l.Ancestors, id) }

// Limit returns the identity, which expires with the login or earlier.
func (l *Login) Limit(id Identity) *Identity {
	if id.Expires.IsZero() || l.Expires.Before(id.Expires) {
		id.Expires = l.Expires
	}
	return &id
}
