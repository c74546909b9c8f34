package tenancy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
)

func TestShareNames(t *testing.T) {
	t.Parallel()
	for owner, want := range map[string]string{"acme": "acme/s", caller.HostTenant: "host/s"} {
		name := ShareName(owner, "s")
		if name != want {
			t.Errorf("the name is %q, want %q", name, want)
		}
		if o, id, ok := ParseShareName(name); o != owner || id != "s" || !ok {
			t.Errorf("%q is read as %q, %q, %v", name, o, id, ok)
		}
	}
	long := strings.Repeat("a", 64) + "/s"
	for _, id := range []string{"", "s", "0000-aaaa_B", "acme.s", "/s", "Acme/s", "a b/s", "../s", long} {
		if owner, own, ok := ParseShareName(id); ok {
			t.Errorf("%q is read as a name: %q, %q", id, owner, own)
		}
	}
}

// step is a change of Shares, by a name.
var steps = map[string]func(*Shares){
	"observe":     func(s *Shares) { s.Offer("g", caller.Read) },
	"participate": func(s *Shares) { s.Offer("g", caller.Drive) },
	"withdraw":    func(s *Shares) { s.Withdraw("g") },
	"accept":      func(s *Shares) { s.Accept("g") },
	"decline":     func(s *Shares) { s.Decline("g") },
	"other":       func(s *Shares) { s.Offer("other", caller.Drive); s.Accept("other") },
}

// The rights of a tenant after each series of changes, and the owner's view of them.
func TestShareSet(t *testing.T) {
	t.Parallel()
	for series, want := range map[string]struct {
		class caller.Class
		state ShareState
	}{
		"":                                       {caller.Unclassed, ""},
		"accept":                                 {caller.Unclassed, ""},
		"decline":                                {caller.Unclassed, ""},
		"other":                                  {caller.Unclassed, ""},
		"observe":                                {caller.Unclassed, Offered},
		"observe accept":                         {caller.Read, Accepted},
		"participate accept":                     {caller.Drive, Accepted},
		"participate accept observe":             {caller.Read, Accepted},
		"observe accept participate":             {caller.Drive, Accepted},
		"observe participate":                    {caller.Unclassed, Offered},
		"observe decline":                        {caller.Unclassed, Declined},
		"observe decline accept":                 {caller.Unclassed, Declined},
		"observe accept decline":                 {caller.Unclassed, Declined},
		"observe decline observe":                {caller.Unclassed, Offered},
		"observe accept decline observe accept":  {caller.Read, Accepted},
		"observe accept withdraw":                {caller.Unclassed, ""},
		"observe accept withdraw accept":         {caller.Unclassed, ""},
		"observe accept withdraw observe":        {caller.Unclassed, Offered},
		"observe accept withdraw observe accept": {caller.Read, Accepted},
	} {
		var s Shares
		for _, step := range strings.Fields(series) {
			steps[step](&s)
		}
		check := func(what string, s *Shares) {
			g, _ := s.Grant("g")
			if got := s.Class("g"); got != want.class || g.State != want.state {
				t.Errorf("%q%s: class %v, state %q, want %v, %q", series, what, got, g.State, want.class, want.state)
			}
		}
		check("", &s)
		text, err := json.Marshal(s.Records())
		if err != nil {
			t.Fatal(err)
		}
		var kept map[string]SavedShare
		if err := json.Unmarshal(text, &kept); err != nil {
			t.Fatal(err)
		}
		var restored Shares
		restored.Restore(kept, nil)
		check(", restored", &restored)
		if !maps.Equal(restored.Grants(), s.Grants()) {
			t.Errorf("%q: restored as %v, was %v", series, restored.Grants(), s.Grants())
		}
	}
}

// The first change that removes the right to a call ends the call, once.
func TestGuestsEndWithTheirRights(t *testing.T) {
	t.Parallel()
	for change, ends := range map[string][]string{
		"observe": {"drive"}, "participate": nil, "accept": nil, "other": nil,
		"decline": {"drive", "read"}, "withdraw": {"drive", "read"},
	} {
		var s Shares
		steps["participate"](&s)
		if _, ok := s.Enter(&Guest{Tenant: "g", Class: caller.Read}); ok {
			t.Fatal("a guest is let in before the share is accepted")
		}
		steps["accept"](&s)
		var ended []string
		for _, class := range []caller.Class{caller.Read, caller.Drive} {
			if _, ok := s.Enter(&Guest{Tenant: "g", Class: class, End: func() {
				s.Class("g") // no lock is held
				ended = append(ended, class.String())
			}}); !ok {
				t.Fatalf("a guest that may %v is not let in", class)
			}
		}
		gone, ok := s.Enter(&Guest{Tenant: "g", Class: caller.Read, End: func() { t.Errorf("%s: a call that is over is ended", change) }})
		if gone(); !ok {
			t.Fatal("a guest is not let in")
		}
		if _, ok := s.Enter(&Guest{Tenant: "g", Class: caller.Own}); ok {
			t.Error("a guest is let in for more than it may")
		}
		steps[change](&s)
		steps[change](&s)
		slices.Sort(ended)
		if !slices.Equal(ended, ends) {
			t.Errorf("%s ends %v, want %v", change, ended, ends)
		}
	}
}

func TestSharesAreBounded(t *testing.T) {
	t.Parallel()
	var s Shares
	for i := range MaxShares {
		if !s.Offer(fmt.Sprint("t", i), caller.Read) {
			t.Fatalf("share %d is refused", i)
		}
	}
	if s.Offer("more", caller.Read) {
		t.Error("one share more is taken")
	}
	if !s.Offer("t0", caller.Drive) {
		t.Error("a share that is there cannot be changed")
	}
	if s.Withdraw("t0"); !s.Offer("more", caller.Read) {
		t.Error("there is no room after one was withdrawn")
	}
}

// A share that an older version saved is an offer, and a damaged one gives no right.
func TestRestoreGivesNoRightThatWasNotAccepted(t *testing.T) {
	t.Parallel()
	var s Shares
	n := s.Restore(map[string]SavedShare{
		"good": {"read", Accepted}, "unknown": {"read", "granted"}, "none": {"read", ""}, "host": {"host", Accepted},
		"own": {"own", Accepted}, "bad": {"", Accepted}, "both": {"read", Declined},
	}, map[string]string{"old": "drive", "both": "drive", "odd": "own", "worse": ""})
	want := map[string]Grant{"good": {caller.Read, Accepted}, "both": {caller.Read, Declined}, "old": {caller.Drive, Offered}}
	if n != 1 || !maps.Equal(s.Grants(), want) {
		t.Errorf("%d offers, %v, want 1, %v", n, s.Grants(), want)
	}
}

// Concurrent changes and guests: in the end no guest without a right has a call.
func TestSetConcurrently(t *testing.T) {
	t.Parallel()
	var s Shares
	var wg sync.WaitGroup
	for _, step := range steps {
		wg.Go(func() {
			for range 200 {
				step(&s)
			}
		})
	}
	wg.Go(func() {
		for range 200 {
			leave, _ := s.Enter(&Guest{Tenant: "g", Class: caller.Read, End: func() {}})
			leave()
		}
	})
	wg.Wait()
	s.Withdraw("g")
	if len(s.guests) != 0 {
		t.Errorf("%d guests are left", len(s.guests))
	}
}
