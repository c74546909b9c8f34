package login_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/login"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a clock that a test sets.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func open(t *testing.T, path string) (*login.Store, *clock) {
	t.Helper()
	c := &clock{time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)}
	s, err := login.Open(login.Config{Path: path, Lifetime: time.Hour, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func add(t *testing.T, s *login.Store, name string) (string, identity.Login) {
	t.Helper()
	cookie, l, err := s.Add(identity.Login{Method: login.MethodToken, Tenant: "acme", Role: caller.Owner,
		Identity: identity.Identity{Source: identity.StaticToken, Token: name}})
	if err != nil {
		t.Fatal(err)
	}
	return cookie, l
}

// A login survives a restart, and the file has no cookie.
func TestLoginsAreStored(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "logins.json")
	s, _ := open(t, path)
	cookie, l := add(t, s, "a")
	out, gone := add(t, s, "b")
	if err := s.End(gone.ID); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), cookie) {
		t.Fatalf("%v, %s", err, text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	again, c := open(t, path)
	found := again.Find(cookie)
	if found == nil || found.ID != l.ID || found.Identity.Token != "a" || found.Role != caller.Owner {
		t.Fatalf("%+v", found)
	}
	if again.Find(out) != nil || again.Find("") != nil || again.Find(l.ID) != nil || again.Find(cookie[1:]) != nil {
		t.Error("another cookie is valid")
	}
	c.Time = c.Add(time.Hour)
	if again.Find(cookie) != nil {
		t.Error("an expired cookie is valid")
	}
}

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "logins.json")
	for _, text := range []string{"{", `{"version":2}`, ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := login.Open(login.Config{Path: path}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A login or logout fails if the file cannot be written.
func TestFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, _ := open(t, filepath.Join(dir, "logins.json"))
	_, l := add(t, s, "a")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if cookie, _, err := s.Add(identity.Login{}); err == nil || cookie != "" {
		t.Errorf("login: %q, %v", cookie, err)
	}
	if err := s.End(l.ID); err == nil {
		t.Error("logout: no error")
	}
}

// A login ends with the proof of its identity.
func TestLoginEndsWithItsProof(t *testing.T) {
	t.Parallel()
	s, c := open(t, "")
	cookie, l, err := s.Add(identity.Login{Identity: identity.Identity{Expires: c.Add(time.Minute)}})
	if err != nil || !l.Expires.Equal(c.Add(time.Minute)) {
		t.Fatalf("%v, %v", l.Expires, err)
	}
	c.Time = c.Add(time.Minute)
	if s.Find(cookie) != nil {
		t.Error("the cookie is valid after its proof")
	}
}

// The oldest login of an identity ends when it has too many, and the oldest of all.
func TestLoginsAreBounded(t *testing.T) {
	t.Parallel()
	s, c := open(t, "")
	var cookies []string
	next := func(name string) {
		c.Time = c.Add(time.Millisecond)
		cookie, _ := add(t, s, name)
		cookies = append(cookies, cookie)
	}
	next("one")
	for range 100 {
		next("many")
	}
	next("many")
	if s.Find(cookies[0]) == nil || s.Find(cookies[1]) != nil || s.Find(cookies[2]) == nil {
		t.Error("not the oldest of the identity has ended")
	}
	for i := range 900 {
		next(fmt.Sprint(i))
	}
	if s.Find(cookies[0]) != nil || s.Find(cookies[2]) == nil {
		t.Error("not the oldest of all has ended")
	}
}

// Calls end with their login.
func TestHold(t *testing.T) {
	t.Parallel()
	s, _ := open(t, "")
	_, l := add(t, s, "a")
	_, other := add(t, s, "b")
	ctx, release, held := s.Hold(t.Context(), l.ID)
	defer release()
	beside, releaseOther, _ := s.Hold(t.Context(), other.ID)
	defer releaseOther()
	if !held || ctx.Err() != nil {
		t.Fatal("the call has ended")
	}
	if err := s.End(l.ID); err != nil {
		t.Fatal(err)
	}
	if context.Cause(ctx) != login.ErrEnded || beside.Err() != nil {
		t.Errorf("%v, %v", context.Cause(ctx), beside.Err())
	}
	if late, _, held := s.Hold(t.Context(), l.ID); held || late.Err() == nil {
		t.Error("a call of a login that has ended runs")
	}
}

// A link can be used once, until it expires, and the oldest is dropped.
func TestLinks(t *testing.T) {
	t.Parallel()
	s, c := open(t, "")
	s.SetURL("http://127.0.0.1:7780")
	offer := func(name string, ttl time.Duration) string {
		url, _ := s.Link(identity.Login{Identity: identity.Identity{Token: name}}, ttl)
		token, ok := strings.CutPrefix(url, "http://127.0.0.1:7780/login#")
		if !ok {
			t.Fatal(url)
		}
		return token
	}
	once := offer("a", time.Minute)
	if l, ok := s.Use(once); !ok || l.Identity.Token != "a" || l.Method != login.MethodLink {
		t.Errorf("%+v, %v", l, ok)
	}
	if _, ok := s.Use(once); ok {
		t.Error("a link was used twice")
	}
	late := offer("a", time.Minute)
	c.Time = c.Add(time.Minute)
	if _, ok := s.Use(late); ok {
		t.Error("an expired link was used")
	}
	other, first := offer("b", time.Hour), offer("a", time.Hour)
	for range 20 {
		offer("a", time.Hour)
	}
	if _, ok := s.Use(first); ok {
		t.Error("the oldest link of too many was used")
	}
	if _, ok := s.Use(other); !ok {
		t.Error("the link of another caller was dropped")
	}
}

// A login ends with each login from which it descends by links, and so do its calls and the links that were not used.
func TestDescendants(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *login.Store, c *clock, root identity.Login) error{
		"logout":  func(s *login.Store, _ *clock, root identity.Login) error { return s.End(root.ID) },
		"restart": nil,
		"room": func(s *login.Store, c *clock, _ identity.Login) error {
			for range 100 { // the oldest of the identity ends
				c.Time = c.Add(time.Millisecond)
				if _, _, err := s.Add(identity.Login{Identity: identity.Identity{Token: "boss"}}); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "logins.json")
			s, c := open(t, path)
			below := func(parent identity.Login) identity.Login {
				return identity.Login{Identity: identity.Identity{Token: "other"},
					Ancestors: append([]string{parent.ID}, parent.Ancestors...)}
			}
			must := func(l identity.Login) (string, identity.Login) {
				t.Helper()
				c.Time = c.Add(time.Millisecond)
				cookie, l, err := s.Add(l)
				if err != nil {
					t.Fatal(err)
				}
				return cookie, l
			}
			_, root := must(identity.Login{Identity: identity.Identity{Token: "boss"}})
			child, middle := must(below(root))
			grandchild, last := must(below(middle))
			beside, _ := must(identity.Login{Identity: identity.Identity{Token: "other"}})
			ctx, release, _ := s.Hold(t.Context(), last.ID)
			defer release()
			url, _ := s.Link(below(middle), time.Minute)
			if end == nil { // the file has the descent
				s, _ = open(t, path)
				end = func(s *login.Store, _ *clock, root identity.Login) error { return s.End(root.ID) }
			} else {
				defer func() {
					if context.Cause(ctx) != login.ErrEnded {
						t.Error("a call of a descendant goes on")
					}
				}()
			}
			if err := end(s, c, root); err != nil {
				t.Fatal(err)
			}
			if s.Find(child) != nil || s.Find(grandchild) != nil || s.Find(beside) == nil {
				t.Error("a descendant is valid, or a login beside it is not")
			}
			_, token, _ := strings.Cut(url, "#")
			if _, ok := s.Use(token); ok {
				t.Error("a link of a descendant is valid")
			}
			if cookie, _, err := s.Add(below(middle)); err == nil || s.Find(cookie) != nil {
				t.Error("a login descends from one that has ended")
			}
			again, _ := open(t, path)
			if again.Find(child) != nil || again.Find(grandchild) != nil || again.Find(beside) == nil {
				t.Error("the file has a descendant, or lacks a login beside it")
			}
		})
	}
}

// A new login does not end its own ancestors for lack of room, since it would end too.
func TestRoomKeepsAncestors(t *testing.T) {
	t.Parallel()
	s, c := open(t, "")
	root, parent := add(t, s, "a")
	for range 99 {
		c.Time = c.Add(time.Millisecond)
		add(t, s, "a")
	}
	c.Time = c.Add(time.Millisecond)
	cookie, _, err := s.Add(identity.Login{Identity: parent.Identity, Ancestors: []string{parent.ID}})
	if err != nil || s.Find(root) == nil || s.Find(cookie) == nil {
		t.Errorf("%v: the ancestor or its descendant has ended", err)
	}
}
