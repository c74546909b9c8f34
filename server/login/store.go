// Package login has the logins of browsers: a cookie in place of a token. Store has the logins and the one-time links
// by which browsers log in, Handler the requests below /auth/ that log in and out.
//
// Store.mu guards the logins, links.mu the links, file.mu the file. Store.save holds file.mu while it takes Store.mu,
// and Store.remove takes links.mu while its caller holds Store.mu; no other code holds two of them. The package starts
// no goroutines.
package login

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/server/identity"
)

// Methods of a login.
const (
	MethodLink        = "link"
	MethodToken       = "token"
	MethodOIDC        = "oidc"
	MethodCertificate = "certificate"
)

// DefaultLifetime is the default of Config.Lifetime.
const DefaultLifetime = 7 * 24 * time.Hour

// Bounds of the logins: beyond them the oldest ends.
const (
	maxLogins       = 1000
	maxLoginsByName = 100
)

// ErrEnded is the cause for the end of a call whose login ended.
var ErrEnded = errors.New("the login has ended")

// Config configures a Store. Optional fields have the documented default.
type Config struct {
	// Path is the file of the logins. By default they end with the process.
	Path string
	// Lifetime is how long a login lasts. The default is DefaultLifetime. It ends earlier when its token expires.
	Lifetime time.Duration
	// Now is the clock. The default is time.Now.
	Now func() time.Time
}

// Store has the logins and links of a server. It is safe for concurrent use.
type Store struct {
	lifetime time.Duration
	now      func() time.Time
	file     file
	links    links

	mu     sync.Mutex
	logins map[string]*entry // by ID
	url    string
}

// entry is a login and the calls that it carries.
type entry struct {
	identity.Login
	calls map[*hold]struct{}
}

// hold is a call that ends with its login.
type hold struct{ end context.CancelCauseFunc }

// Open reads the logins of a file. It fails if the file is damaged.
func Open(c Config) (*Store, error) {
	if c.Lifetime <= 0 {
		c.Lifetime = DefaultLifetime
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Store{lifetime: c.Lifetime, now: c.Now, file: file{path: c.Path}, logins: map[string]*entry{}}
	s.links.now = c.Now
	logins, err := s.file.read()
	if err != nil {
		return nil, err
	}
	now := s.now()
	for _, l := range logins {
		if now.Before(l.Expires) {
			s.logins[l.ID] = &entry{Login: l}
		}
	}
	return s, nil
}

// Add stores a login and returns its cookie. It sets the login's ID and times. The login ends at its Expires, if that
// is set, or else after the lifetime; and never after the proof of its identity. Add returns UNAUTHENTICATED if the
// login descends from one that has ended.
func (s *Store) Add(l identity.Login) (cookie string, added identity.Login, err error) {
	cookie = rand.Text()
	l.ID, l.Created = digest(cookie), s.now()
	if l.Expires.IsZero() {
		l.Expires = l.Created.Add(s.lifetime)
	}
	if at := l.Identity.Expires; !at.IsZero() && at.Before(l.Expires) {
		l.Expires = at
	}
	s.mu.Lock()
	if len(l.Ancestors) > 0 && s.logins[l.Ancestors[0]] == nil {
		s.mu.Unlock()
		return "", l, errorLink()
	}
	ended := s.makeRoom(&l)
	s.logins[l.ID] = &entry{Login: l}
	s.mu.Unlock()
	ended.cancel()
	if err := s.save(); err != nil {
		s.mu.Lock()
		delete(s.logins, l.ID)
		s.mu.Unlock()
		return "", l, err
	}
	return cookie, l, nil
}

// holds are calls to cancel.
type holds []*hold

func (h holds) cancel() {
	for _, one := range h {
		one.end(ErrEnded)
	}
}

// makeRoom ends expired logins, and the oldest ones above the bounds, but no ancestor of the new login. It returns
// their calls. The caller holds mu.
func (s *Store) makeRoom(l *identity.Login) (ended holds) {
	now, key := s.now(), l.Identity.Key()
	var all, own []*entry
	for _, e := range s.logins {
		if !now.Before(e.Expires) {
			ended = append(ended, s.remove(e.ID, "")...)
			continue
		}
		if l.DescendsFrom(e.ID) {
			continue
		}
		all = append(all, e)
		if e.Identity.Key() == key {
			own = append(own, e)
		}
	}
	older := func(a, b *entry) int { return a.Created.Compare(b.Created) }
	switch {
	case len(own) >= maxLoginsByName:
		ended = append(ended, s.remove(slices.MinFunc(own, older).ID, "")...)
	case len(all) >= maxLogins:
		ended = append(ended, s.remove(slices.MinFunc(all, older).ID, "")...)
	}
	return ended
}

// remove removes a login with the logins and links that descend from it, except the login keep, and returns their
// calls. The caller holds mu.
func (s *Store) remove(id, keep string) (ended holds) {
	for _, e := range s.logins {
		if e.ID == keep || e.ID != id && !e.DescendsFrom(id) {
			continue
		}
		delete(s.logins, e.ID)
		for h := range e.calls {
			ended = append(ended, h)
		}
	}
	s.links.remove(id)
	return ended
}

// Find returns the login of a cookie; nil if there is none.
func (s *Store) Find(cookie string) *identity.Login {
	if cookie == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.logins[digest(cookie)]
	if e == nil || !s.now().Before(e.Expires) {
		return nil
	}
	l := e.Login
	return &l
}

// End ends a login, the logins and links that descend from it, and their calls. An error reports that the file still
// has them.
func (s *Store) End(id string) error { return s.end(id, "") }

// Replace is End for the earlier login of a browser that has a new one. If the browser has used a link of its earlier
// login, the new one stays, and a later End of the earlier one still ends it: its cookie may have been stolen.
func (s *Store) Replace(id string, by *identity.Login) error { return s.end(id, by.ID) }

func (s *Store) end(id, keep string) error {
	s.mu.Lock()
	before := len(s.logins)
	ended := s.remove(id, keep)
	changed := len(s.logins) < before
	s.mu.Unlock()
	ended.cancel()
	if !changed {
		return nil
	}
	return s.save()
}

// Hold returns a context that ends with the login, with the cause ErrEnded, and a function to call at the end of the
// call. It returns false if the login has ended.
func (s *Store) Hold(ctx context.Context, id string) (_ context.Context, release func(), held bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	h := &hold{cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.logins[id]
	if e == nil {
		cancel(ErrEnded)
		return ctx, func() {}, false
	}
	if e.calls == nil {
		e.calls = map[*hold]struct{}{}
	}
	e.calls[h] = struct{}{}
	return ctx, func() {
		s.mu.Lock()
		delete(e.calls, h)
		s.mu.Unlock()
		cancel(nil)
	}, true
}

// save writes the logins to the file.
func (s *Store) save() error {
	return s.file.write(func() (logins []identity.Login) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.logins {
			logins = append(logins, e.Login)
		}
		slices.SortFunc(logins, func(a, b identity.Login) int { return a.Created.Compare(b.Created) })
		return logins
	})
}

// SetURL sets the URL of the listener, which links begin with.
func (s *Store) SetURL(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.url = url
}

// URL returns the URL of the listener; "" if there is no listener.
func (s *Store) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url
}

// digest returns the SHA-256 of a secret, in hexadecimal. Secrets are long and random, so that plain SHA-256 is
// sufficient.
func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
