package login

import (
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
)

// Bounds of the links that were not used yet: beyond them the oldest is no longer valid.
const (
	maxLinks       = 200
	maxLinksByName = 20
)

// links are the one-time links that were not used yet. They end with the process.
type links struct {
	now func() time.Time

	mu    sync.Mutex
	queue []link // oldest first
}

// link is a login that awaits its browser.
type link struct {
	digest  string
	login   identity.Login
	expires time.Time
}

// add adds a link.
func (l *links) add(one link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, key, own := l.now(), one.login.Identity.Key(), 0
	left := l.queue[:0:0]
	for _, other := range l.queue {
		if now.Before(other.expires) {
			left = append(left, other)
			if other.login.Identity.Key() == key {
				own++
			}
		}
	}
	for i := 0; i < len(left) && (own >= maxLinksByName || len(left) >= maxLinks); i++ {
		if own < maxLinksByName || left[i].login.Identity.Key() == key {
			left = append(left[:i:i], left[i+1:]...)
			break
		}
	}
	l.queue = append(left, one)
}

// take removes and returns the login of a link.
func (l *links) take(digest string) (identity.Login, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, one := range l.queue {
		if one.digest == digest {
			l.queue = append(l.queue[:i:i], l.queue[i+1:]...)
			return one.login, l.now().Before(one.expires)
		}
	}
	return identity.Login{}, false
}

// remove removes the links that descend from a login.
func (l *links) remove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = slices.DeleteFunc(l.queue, func(one link) bool { return one.login.DescendsFrom(id) })
}

// errorLink returns the error for a link that is not valid.
func errorLink() error {
	return fault.New(fault.Unauthenticated,
		"the link is unknown, used or expired: create one with \"copilot-grpc web link\"")
}

// Link returns a link by which one browser gets a login, until the link expires. The token is in the fragment, which
// browsers send to no server: logs and previews of links do not get it.
func (s *Store) Link(l identity.Login, ttl time.Duration) (url string, expires time.Time) {
	l.Method = MethodLink
	token := rand.Text()
	expires = s.now().Add(ttl)
	if at := l.Identity.Expires; !at.IsZero() && at.Before(expires) {
		expires = at
	}
	s.links.add(link{digest(token), l, expires})
	return s.URL() + "/login#" + token, expires
}

// Use consumes the token of a link. It returns false for a token that is unknown, used or expired.
func (s *Store) Use(token string) (identity.Login, bool) { return s.links.take(digest(token)) }
