package manage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	observe     = bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE
	participate = bridgev1.ShareAccess_SHARE_ACCESS_PARTICIPATE
	shared      = bridgev1.SessionChange_SESSION_CHANGE_SHARED
	unshared    = bridgev1.SessionChange_SESSION_CHANGE_UNSHARED
)

// fixture is a service with the sessions of several tenants. It implements Sessions, both Watchers and audit.Sink.
type fixture struct {
	*Shares
	entries map[string]*sessions.Entry
	saves   int
	// refreshed counts the changes that WatchPending receives.
	refreshed int
	changes   []string // tenant and change, as watchers receive them
	audited   []audit.Entry
}

// newFixture returns a service with a session "s" of each tenant.
func newFixture(t interface{ Fatal(...any) }, tenants ...string) *fixture {
	f := &fixture{entries: map[string]*sessions.Entry{}}
	f.Shares = NewShares(f, ShareWatchers{Sessions: f, Pending: f}, f)
	for _, tenant := range tenants {
		e := sessions.NewEntry(runtime.Profile{})
		e.Session = session.New(session.Config{ID: "s", Tenant: tenant, Host: host{}, Epoch: 1})
		if err := e.Session.Restore([]byte(`{"config":{}}`), nil, nil, nil); err != nil {
			t.Fatal(err)
		}
		f.entries[e.Key()] = e
	}
	return f
}

func (f *fixture) OpenEntry(ctx context.Context, id string) (*sessions.Entry, error) {
	if e := f.Get(tenancy.KeyOf(caller.From(ctx).Tenant, id)); e != nil {
		return e, nil
	}
	return nil, session.NotFound(id)
}

func (f *fixture) Get(key string) *sessions.Entry          { return f.entries[key] }
func (f *fixture) Usable() []*sessions.Entry               { return slices.Collect(maps.Values(f.entries)) }
func (f *fixture) Save(*sessions.Entry) error              { f.saves++; return nil }
func (f *fixture) Record(_ context.Context, e audit.Entry) { f.audited = append(f.audited, e) }
func (f *fixture) SharesChanged(*sessions.Entry)           { f.refreshed++ }
func (f *fixture) ChangedFor(_ *sessions.Entry, tenant string, what bridgev1.SessionChange) {
	f.changes = append(f.changes, fmt.Sprint(tenant, " ", what))
}

// host is the host of sessions that are never loaded.
type host struct{}

func (host) Runtime(context.Context) (session.Runtime, error) { return nil, errors.New("no runtime") }
func (host) Stopped() <-chan struct{}                         { return nil }
func (host) Go(func(context.Context)) bool                    { return false }
func (host) Spawn(func())                                     {}
func (host) Changed(bridgev1.SessionChange)                   {}
func (host) MarkDirty()                                       {}
func (host) Store() error                                     { return nil }
func (host) LabelsChanged()                                   {}
func (host) CallbackRequested(*callback.Pending)              {}
func (host) CallbackResolved(session.Resolved)                {}
func (host) Refresh()                                         {}
func (host) BuiltIns(context.Context) *config.BuiltIns        { return nil }

func (host) Watched(map[string]string) []string { return nil }
func (host) Epoch() uint64                      { return 1 }
func (host) Logger() *slog.Logger               { return slog.New(slog.DiscardHandler) }

func as(tenant string) context.Context {
	return caller.With(context.Background(), caller.Caller{Tenant: tenant})
}

func (f *fixture) share(owner, id, with string, access bridgev1.ShareAccess) error {
	_, err := f.ShareSession(as(owner), &bridgev1.ShareSessionRequest{SessionId: id, Tenant: with, Access: access})
	return err
}

func (f *fixture) unshare(owner, id, with string) error {
	_, err := f.UnshareSession(as(owner), &bridgev1.UnshareSessionRequest{SessionId: id, Tenant: with})
	return err
}

func (f *fixture) accept(tenant, name string) error {
	_, err := f.AcceptShare(as(tenant), &bridgev1.AcceptShareRequest{SessionId: name})
	return err
}

func (f *fixture) decline(tenant, name string) error {
	_, err := f.DeclineShare(as(tenant), &bridgev1.DeclineShareRequest{SessionId: name})
	return err
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		call   func(f *fixture) error
		reason fault.Reason
		field  string
	}{
		"no access":               {func(f *fixture) error { return f.share("acme", "s", "guest", 0) }, fault.InvalidField, "access"},
		"an unknown access":       {func(f *fixture) error { return f.share("acme", "s", "guest", 99) }, fault.InvalidField, "access"},
		"an unknown session":      {func(f *fixture) error { return f.share("acme", "x", "guest", observe) }, fault.SessionNotFound, "session_id"},
		"the owner":               {func(f *fixture) error { return f.share("acme", "s", "acme", observe) }, fault.InvalidField, "tenant"},
		"no tenant":               {func(f *fixture) error { return f.share("acme", "s", "", observe) }, fault.InvalidField, "tenant"},
		"no name of a tenant":     {func(f *fixture) error { return f.share("acme", "s", "Not/A", observe) }, fault.InvalidField, "tenant"},
		"the host as owner":       {func(f *fixture) error { return f.share("", "s", "host", observe) }, fault.InvalidField, "tenant"},
		"a guest shares":          {func(f *fixture) error { return f.share("guest", "acme/s", "other", observe) }, fault.Forbidden, "session_id"},
		"a guest unshares":        {func(f *fixture) error { return f.unshare("guest", "acme/s", "guest") }, fault.Forbidden, "session_id"},
		"accepts without offer":   {func(f *fixture) error { return f.accept("guest", "acme/s") }, fault.SessionNotFound, "session_id"},
		"declines without offer":  {func(f *fixture) error { return f.decline("guest", "acme/s") }, fault.SessionNotFound, "session_id"},
		"accepts its own":         {func(f *fixture) error { return f.accept("acme", "acme/s") }, fault.SessionNotFound, "session_id"},
		"accepts an unknown one":  {func(f *fixture) error { return f.accept("guest", "acme/x") }, fault.SessionNotFound, "session_id"},
		"accepts a malformed one": {func(f *fixture) error { return f.accept("guest", "acme/..") }, fault.InvalidField, "session_id"},
		"declines no name":        {func(f *fixture) error { return f.decline("guest", "") }, fault.InvalidField, "session_id"},
		"a page that is too large": {func(f *fixture) error {
			_, err := f.ListShareOffers(as("guest"), &bridgev1.ListShareOffersRequest{PageSize: fields.MaxPageSize + 1})
			return err
		}, fault.InvalidField, "page_size"},
	} {
		f := newFixture(t, "acme", "")
		err := test.call(f)
		if got, ok := errors.AsType[*fault.Error](err); !ok || got.Reason != test.reason || got.Field != test.field {
			t.Errorf("%s: the error is %v, want %v about %q", name, err, test.reason, test.field)
		}
		if f.saves > 0 || f.changes != nil || f.audited != nil {
			t.Errorf("%s: %d saves, changes %v, audit %v", name, f.saves, f.changes, f.audited)
		}
	}
}

// The audit log names the host's owner as policies do, and the access where a call gives it.
func TestAudit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "acme", "")
	for _, err := range []error{
		f.share("acme", "s", "host", participate), f.accept("", "acme/s"), f.decline("", "acme/s"),
		f.share("", "s", "acme", observe), f.unshare("", "s", "acme"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, e := range f.audited {
		got = append(got, strings.Join([]string{e.Action, e.Session, e.Owner, e.With, e.Access}, " "))
	}
	want := []string{
		"session.share s acme host drive", "session.share_accept s acme host drive", "session.share_decline s acme host ",
		"session.share s  acme read", "session.unshare s  acme ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the audit log has\n%q, want\n%q", got, want)
	}
}

func TestSharesAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "acme")
	for n := range tenancy.MaxShares {
		if err := f.share("acme", "s", fmt.Sprint("t", n), observe); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.share("acme", "s", "more", observe); fault.ReasonOf(err) != fault.LimitExceeded {
		t.Errorf("the error is %v", err)
	}
	if err := f.share("acme", "s", "t0", participate); err != nil {
		t.Errorf("a changed share is refused: %v", err)
	}
}

// A disconnected or deleted session has no offers to accept.
func TestOffersOfEndedSessions(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "acme")
	if err := f.share("acme", "s", "guest", observe); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Get(session.Key("acme", "s")).Session.Loader().Disconnect(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := f.accept("guest", "acme/s"); fault.ReasonOf(err) != fault.SessionNotFound {
		t.Errorf("accepting returns %v", err)
	}
}

func TestOffersAreListedInPages(t *testing.T) {
	t.Parallel()
	owners := []string{"a", "b", "c", "d", ""}
	f := newFixture(t, append(owners, "guest")...)
	for _, owner := range owners {
		if err := f.share(owner, "s", "guest", observe); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.accept("guest", "b/s"), f.decline("guest", "c/s")); err != nil {
		t.Fatal(err)
	}
	for size := range int32(4) {
		var got []string
		q := &bridgev1.ListShareOffersRequest{PageSize: size}
		for {
			page, err := f.ListShareOffers(as("guest"), q)
			if err != nil {
				t.Fatal(err)
			}
			if size > 0 && len(page.GetOffers()) > int(size) {
				t.Errorf("a page of %d has %d offers", size, len(page.GetOffers()))
			}
			for _, o := range page.GetOffers() {
				got = append(got, o.GetOwner()+" "+o.GetSessionId())
			}
			if q.PageToken = page.GetNextPageToken(); q.PageToken == "" {
				break
			}
		}
		if want := []string{"a a/s", "d d/s", "host host/s"}; !slices.Equal(got, want) {
			t.Errorf("in pages of %d the offers are %q, want %q", size, got, want)
		}
	}
}

// model is what a series of calls makes of a share between an owner and a guest.
type model struct {
	state  tenancy.ShareState
	access bridgev1.ShareAccess
	saves  int
	// changes are what the guest's watchers receive.
	changes []string
}

// apply applies a successful call, and reports whether the call must succeed.
func (m *model) apply(call string) bool {
	switch call {
	case "observe", "participate":
		if m.state != tenancy.Accepted {
			m.state = tenancy.Offered
		}
		m.access = map[string]bridgev1.ShareAccess{"observe": observe, "participate": participate}[call]
		m.saves++
	case "unshare":
		if m.state == tenancy.Accepted {
			m.changes = append(m.changes, fmt.Sprint("guest ", unshared))
		}
		m.state, m.access = "", 0
		m.saves++
	case "accept":
		if m.state == "" || m.state == tenancy.Declined {
			return false
		}
		if m.state == tenancy.Offered {
			m.changes = append(m.changes, fmt.Sprint("guest ", shared))
			m.saves++
		}
		m.state = tenancy.Accepted
	case "decline":
		switch m.state {
		case "":
			return false
		case tenancy.Declined:
			return true
		case tenancy.Accepted:
			m.changes = append(m.changes, fmt.Sprint("guest ", unshared))
		}
		m.state = tenancy.Declined
		m.saves++
	}
	return true
}

// TestShares: after any series of calls the share, the offers, the watchers, the saves and the audit log are as in
// the model, and another guest's share has not changed.
func TestShares(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		f, m := newFixture(rt, "acme"), &model{}
		if err := errors.Join(f.share("acme", "s", "other", observe), f.accept("other", "acme/s")); err != nil {
			rt.Fatal(err)
		}
		before := len(f.audited)
		f.saves, f.refreshed, f.changes = 0, 0, nil
		for range rapid.IntRange(1, 20).Draw(rt, "calls") {
			call := rapid.SampledFrom([]string{"observe", "participate", "unshare", "accept", "decline"}).Draw(rt, "call")
			err := map[string]func() error{
				"observe":     func() error { return f.share("acme", "s", "guest", observe) },
				"participate": func() error { return f.share("acme", "s", "guest", participate) },
				"unshare":     func() error { return f.unshare("acme", "s", "guest") },
				"accept":      func() error { return f.accept("guest", "acme/s") },
				"decline":     func() error { return f.decline("guest", "acme/s") },
			}[call]()
			if ok := m.apply(call); ok != (err == nil) || err != nil && fault.ReasonOf(err) != fault.SessionNotFound {
				rt.Fatalf("%s returns %v", call, err)
			}
			f.compare(rt, m, before)
		}
	})
}

// compare fails the test unless the service's state is the model's.
func (f *fixture) compare(rt *rapid.T, m *model, before int) {
	e := f.entries[session.Key("acme", "s")]
	grant, has := e.Shares.Grant("guest")
	if has != (m.state != "") || has && (grant.State != m.state || tenancy.ShareAccess(grant.Class) != m.access) {
		rt.Fatalf("the share is %+v, %t; want %s for %v", grant, has, m.state, m.access)
	}
	if other, ok := e.Shares.Grant("other"); !ok || other.State != tenancy.Accepted || other.Class != caller.Read {
		rt.Fatalf("the other tenant's share is %+v", other)
	}
	offers, err := f.ListShareOffers(as("guest"), &bridgev1.ListShareOffersRequest{})
	if err != nil {
		rt.Fatal(err)
	}
	var want []*bridgev1.ShareOffer
	if m.state == tenancy.Offered {
		want = []*bridgev1.ShareOffer{{SessionId: "acme/s", Owner: "acme", Access: m.access}}
	}
	if !proto.Equal(offers, &bridgev1.ListShareOffersResponse{Offers: want}) {
		rt.Fatalf("the offers are %v, want %v", offers, want)
	}
	if f.saves != m.saves || f.refreshed != m.saves || len(f.audited)-before != m.saves || !slices.Equal(f.changes, m.changes) {
		rt.Fatalf("%d saves, %d refreshes, %d audit entries, changes %v; want %d and %v",
			f.saves, f.refreshed, len(f.audited)-before, f.changes, m.saves, m.changes)
	}
}
