package sessions

import (
	"context"
	"log/slog"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// newStore returns a store in memory.
func newStore() *Store {
	return New(Config{
		Session: func(string) session.Config { return session.Config{} },
		Host:    func(*Entry) session.Host { return struct{ session.Host }{} },
		Tenants: &tenancy.Tenants{},
		Forget:  func(string) {},
		Log:     slog.New(slog.DiscardHandler),
	})
}

// as returns the context of a call of a tenant.
func as(t *testing.T, tenant string, class caller.Class) context.Context {
	t.Helper()
	return caller.With(t.Context(), caller.Caller{Tenant: tenant, Role: caller.Owner, Class: class})
}

// A guest finds a session from the acceptance of a share to its end, for calls of the class that
// the share permits.
func TestGuestsFindSharedSessions(t *testing.T) {
	t.Parallel()
	st := newStore()
	e, fresh, _ := st.GetOrCreate(t.Context(), "owner", "s")
	if !fresh {
		t.Fatal("the first session of an id is not new")
	}
	for _, step := range []struct {
		name        string
		do          func()
		read, drive fault.Reason // 0: the session is found
	}{
		{"no share", func() {}, fault.SessionNotFound, fault.SessionNotFound},
		{"an offer", func() { e.Shares.Offer("guest", caller.Read) }, fault.SessionNotFound, fault.SessionNotFound},
		{"accepted", func() { e.Shares.Accept("guest") }, 0, fault.Forbidden},
		{"more access", func() { e.Shares.Offer("guest", caller.Drive) }, 0, 0},
		{"withdrawn", func() { e.Shares.Withdraw("guest") }, fault.SessionNotFound, fault.SessionNotFound},
	} {
		step.do()
		for class, want := range map[caller.Class]fault.Reason{caller.Read: step.read, caller.Drive: step.drive} {
			s, err := st.Find(as(t, "guest", class), "owner/s")
			if want == 0 && (err != nil || s != e.Session) || want != 0 && fault.ReasonOf(err) != want {
				t.Errorf("%s: a call of the class %v finds %v, %v", step.name, class, s, err)
			}
		}
		if s, err := st.Find(as(t, "owner", caller.Drive), "s"); err != nil || s != e.Session {
			t.Errorf("%s: the owner finds %v, %v", step.name, s, err)
		}
		if _, err := st.Find(as(t, "guest", caller.Read), "s"); fault.ReasonOf(err) != fault.SessionNotFound {
			t.Errorf("%s: a guest finds a session by its id: %v", step.name, err)
		}
	}
}

func TestCheckOwn(t *testing.T) {
	t.Parallel()
	st := newStore()
	e, _, _ := st.GetOrCreate(t.Context(), "owner", "s")
	e.Shares.Offer("guest", caller.Drive)
	e.Shares.Accept("guest")
	for id, want := range map[string]fault.Reason{
		"s": 0, "": fault.InvalidField, "../x": fault.InvalidField,
		"owner/s": fault.Forbidden, "owner/other": fault.SessionNotFound,
	} {
		err := st.CheckOwn(as(t, "guest", caller.Drive), id, "resume.session_id")
		if want == 0 && err != nil || want != 0 && fault.ReasonOf(err) != want {
			t.Errorf("%q: %v, want %v", id, err, want)
		}
	}
}

// The call of a guest ends with the share. The owner's goes on.
func TestCallsEndWithTheShare(t *testing.T) {
	t.Parallel()
	st := newStore()
	e, _, _ := st.GetOrCreate(t.Context(), "owner", "s")
	e.Shares.Offer("guest", caller.Read)
	e.Shares.Accept("guest")
	guest, endGuest := st.During(as(t, "guest", caller.Read), e.Session)
	owner, endOwner := st.During(as(t, "owner", caller.Read), e.Session)
	if guest.Err() != nil || owner.Err() != nil {
		t.Fatalf("the calls end at once: %v, %v", guest.Err(), owner.Err())
	}
	e.Shares.Withdraw("guest")
	<-guest.Done()
	if err := endGuest(guest.Err()); fault.ReasonOf(err) != fault.SessionNotFound {
		t.Errorf("the guest's call ends with %v", err)
	}
	if owner.Err() != nil || endOwner(nil) != nil {
		t.Errorf("the owner's call ends with %v", owner.Err())
	}
	st.Remove(e)
	late, endLate := st.During(as(t, "guest", caller.Read), e.Session)
	if late.Err() == nil || fault.ReasonOf(endLate(late.Err())) != fault.SessionNotFound {
		t.Error("a guest's call in a removed session goes on")
	}
	if got := st.Snapshot(e.Session, "guest"); got.GetAccess() != bridgev1.ShareAccess_SHARE_ACCESS_UNSPECIFIED {
		t.Errorf("a removed session is shared: %v", got)
	}
}
