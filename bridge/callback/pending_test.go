package callback

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

func noExpiry(string) {}

func wantReason(t *testing.T, what string, err error, want fault.Reason) {
	t.Helper()
	if got := fault.ReasonOf(err); got != want || (err == nil) != (want == 0) {
		t.Errorf("%s: error %v has reason %q, want %q", what, err, got, want)
	}
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	r := NewRegistry(nil)
	a, b := &Pending{ID: "a"}, &Pending{ID: "b"}
	if !r.Add(a, noExpiry) || !r.Add(b, noExpiry) || r.Add(&Pending{ID: "a"}, noExpiry) {
		t.Fatal("not added once each")
	}
	if l := r.List(); len(l) != 2 || l[0] != a || l[1] != b || r.Len() != 2 {
		t.Errorf("list is %v", l)
	}
	if p, err := r.Get("a"); p != a || err != nil {
		t.Errorf("Get: %v, %v", p, err)
	}

	if p, err := r.Claim("a"); p != a || err != nil {
		t.Errorf("Claim: %v, %v", p, err)
	}
	_, err := r.Claim("a")
	wantReason(t, "claimed twice", err, fault.CallbackResolved)
	r.Unclaim(a)
	_, err = r.Claim("a")
	wantReason(t, "claimed after its release", err, 0)

	r.Unclaim(a)
	if p := r.ClaimOver("a"); p != a {
		t.Errorf("claimed after its release: %v", p)
	}
	_, err = r.Claim("a")
	wantReason(t, "claimed after ClaimOver", err, fault.CallbackResolved)
	if p := r.ClaimOver("x"); p != nil {
		t.Errorf("an unknown callback is claimed: %v", p)
	}

	if !done(r, "a") {
		t.Error("Done knows nothing of a pending callback")
	}
	if done(r, "a") {
		t.Error("Done ends a callback twice")
	}
	for what, call := range map[string]func(string) error{
		"Get":     func(id string) error { _, err := r.Get(id); return err },
		"Claim":   func(id string) error { _, err := r.Claim(id); return err },
		"Abstain": func(id string) error { _, err := r.Abstain(id, "p"); return err },
	} {
		wantReason(t, what+" of what is over", call("a"), fault.CallbackResolved)
		wantReason(t, what+" of what never was", call("x"), fault.CallbackNotFound)
	}
	r.Unclaim(a) // does nothing
	if l := r.List(); len(l) != 1 || l[0] != b {
		t.Errorf("list is %v", l)
	}

	// The CLI may request the same id again after a resume.
	if !r.Add(&Pending{ID: "a"}, noExpiry) {
		t.Error("an id that was over is refused")
	}
	if _, err := r.Get("a"); err != nil {
		t.Error(err)
	}
}

func TestOnlyOneClaims(t *testing.T) {
	t.Parallel()
	r := NewRegistry(nil)
	r.Add(&Pending{ID: "a"}, noExpiry)
	const callers = 16
	won := make(chan bool, callers)
	for range callers {
		go func() {
			_, err := r.Claim("a")
			won <- err == nil
		}()
	}
	winners := 0
	for range callers {
		if <-won {
			winners++
		}
	}
	if winners != 1 {
		t.Errorf("%d claimed it", winners)
	}
}

func TestOfferAndAbstain(t *testing.T) {
	t.Parallel()
	r := NewRegistry(nil)
	p := &Pending{ID: "a"}
	r.Add(p, noExpiry)
	abstain := func(participant string, want bool) {
		t.Helper()
		if all, err := r.Abstain("a", participant); all != want || err != nil {
			t.Errorf("%q abstains: all %v, want %v (%v)", participant, all, want, err)
		}
	}
	abstain("", false)
	abstain("stranger", false)
	r.Offer("a", "one", "two")
	r.Offer("a", "two")
	r.Offer("gone", "one")
	if got := fmt.Sprint(r.Offered(p)); got != "[one two]" {
		t.Errorf("offered to %s", got)
	}
	abstain("one", false)
	abstain("one", false)
	abstain("two", true)
	r.Offer("a", "three")
	abstain("two", false)
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(nil)
		var mu sync.Mutex
		var expired []string
		take := func() string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			defer func() { expired = nil }()
			return fmt.Sprint(expired)
		}
		add := func(id string, after time.Duration) *Pending {
			p := &Pending{ID: id, Deadline: time.Now().Add(after)}
			r.Add(p, func(id string) {
				mu.Lock()
				defer mu.Unlock()
				expired = append(expired, id)
			})
			return p
		}
		add("short", time.Second)
		add("done", 2*time.Second)
		claimed := add("claimed", 3*time.Second)
		r.Add(&Pending{ID: "endless"}, func(string) { t.Error("no deadline, and expired") })
		done(r, "done")
		time.Sleep(2 * time.Second)
		if got := take(); got != "[short]" {
			t.Errorf("expired: %s", got)
		}
		if _, err := r.Claim("claimed"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // it expires during the claim
		_ = take()
		r.Unclaim(claimed)
		if got := take(); got != "[claimed]" {
			t.Errorf("expired after the release: %s", got)
		}
		done(r, "claimed")
		r.Unclaim(claimed)
		time.Sleep(time.Hour)
		if got := take(); got != "[]" {
			t.Errorf("what is over expired: %s", got)
		}
	})
}

func TestBounds(t *testing.T) {
	t.Parallel()
	r := NewRegistry(nil)
	id := func(i int) string { return fmt.Sprint("c", i) }
	for i := range MaxPending {
		if !r.Add(&Pending{ID: id(i)}, noExpiry) {
			t.Fatalf("callback %d is refused", i)
		}
	}
	if r.Add(&Pending{ID: "more"}, noExpiry) {
		t.Error("one more is taken")
	}
	done(r, id(0))
	if !r.Add(&Pending{ID: "more"}, noExpiry) {
		t.Error("there is room, and it is refused")
	}
	// The registry remembers a bounded number of ended callbacks.
	for i := MaxPending; i < MaxPending+maxRemembered; i++ {
		done(r, id(i-MaxPending))
		done(r, "more")
		r.Add(&Pending{ID: id(i)}, noExpiry)
	}
	if len(r.over) > maxRemembered || len(r.overIDs) > maxRemembered {
		t.Errorf("%d and %d are remembered", len(r.over), len(r.overIDs))
	}
	_, err := r.Get(id(0))
	var f *fault.Error
	if !errors.As(err, &f) || f.Reason != fault.CallbackNotFound || f.Field != "callback_id" || f.Metadata["callback_id"] != id(0) {
		t.Errorf("long over: %+v", err)
	}
	_, err = r.Get(id(maxRemembered - 1))
	wantReason(t, "over just now", err, fault.CallbackResolved)
}

// A callback that ends during a claim has ended for the claimant, too: Unclaim does nothing, and a repeated
// answer does not wait.
func TestOverWhileAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(nil)
		p := &Pending{ID: "a"}
		r.Add(p, noExpiry)
		by := Responder{Participant: "p"}
		if _, err := r.ClaimBy("a", by); err != nil {
			t.Fatal(err)
		}
		_, _, settled := r.Repeated("a", by)
		done(r, "a")
		<-settled
		if _, repeated, _ := r.Repeated("a", by); repeated {
			t.Error("an answer that did not count is said to have come")
		}
		r.Unclaim(p)
		if _, err := r.Get("a"); fault.ReasonOf(err) != fault.CallbackResolved {
			t.Errorf("after the release it is %v", err)
		}
	})
}

// The CLI may say that it waits for no answer while one is being delivered whose end then remains unknown.
func TestOverDuringAnAnswer(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		after func(*Registry)
		over  bool
	}{
		"it is over":              {func(*Registry) {}, true},
		"an earlier list has it":  {func(r *Registry) { r.Awaited("a", 0) }, true},
		"a later list has it":     {func(r *Registry) { r.Awaited("a", r.Ends()) }, false},
		"the CLI asks once more":  {func(r *Registry) { r.Add(&Pending{ID: "a"}, noExpiry) }, false},
		"another one is awaited":  {func(r *Registry) { r.Awaited("b", r.Ends()) }, true},
		"its end has been noted":  {func(r *Registry) { done(r, "a") }, false},
		"another one is added":    {func(r *Registry) { r.Add(&Pending{ID: "c"}, noExpiry) }, true},
		"the CLI says so twice":   {func(r *Registry) { r.ClaimOver("a") }, true},
		"another one has an end":  {func(r *Registry) { done(r, "b") }, true},
		"a list is made in time":  {func(r *Registry) { ends := r.Ends(); done(r, "b"); r.Awaited("a", ends) }, false},
		"it is over after a list": {func(r *Registry) { ends := r.Ends(); r.ClaimOver("a"); r.Awaited("a", ends) }, true},
	} {
		r := NewRegistry(nil)
		a := &Pending{ID: "a"}
		r.Add(a, noExpiry)
		r.Add(&Pending{ID: "b"}, noExpiry)
		if _, err := r.Claim("a"); err != nil {
			t.Fatal(err)
		}
		if p := r.ClaimOver("a"); p != nil {
			t.Errorf("%s: claimed twice", what)
		}
		test.after(r)
		if over := r.Unclaim(a); over != test.over {
			t.Errorf("%s: over is %v", what, over)
		}
		if _, err := r.Claim("a"); test.over && err == nil { // the caller of Unclaim ends it
			t.Errorf("%s: it can be claimed again", what)
		}
	}
}

// The CLI may wait for an answer that has not reached it.
func TestUnreached(t *testing.T) {
	t.Parallel()
	for _, reached := range []bool{false, true} {
		r := NewRegistry(nil)
		a := &Pending{ID: "a"}
		r.Add(a, noExpiry)
		ends := r.Ends()
		if !reached {
			r.Unreached(a)
		}
		done(r, "a")
		if got := r.EndedSince("a", ends); got != reached {
			t.Errorf("reached: %v, ended since: %v", reached, got)
		}
	}
}

// The CLI tells the end of a callback for which there was no place: a list that it made before that is out of date.
func TestEndWithoutAPlace(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} {
		r := NewRegistry(full{})
		ends := r.Ends()
		if r.Add(&Pending{ID: "a"}, noExpiry) {
			t.Fatal("there was a place")
		}
		if told && r.ClaimOver("a") != nil {
			t.Error("a callback without a place can be claimed")
		}
		if got := r.EndedSince("a", ends); got != told {
			t.Errorf("told: %v, ended since: %v", told, got)
		}
	}
}

// full is a room without a place.
type full struct{}

func (full) Take() bool { return false }
func (full) Give()      {}

// The CLI may ask a callback again that has ended. The end of the first one is not that of the second.
func TestEndOfAnEarlierOne(t *testing.T) {
	t.Parallel()
	r := NewRegistry(nil)
	first, second := &Pending{ID: "a"}, &Pending{ID: "a"}
	r.Add(first, noExpiry)
	if !r.Done(first) || r.Done(first) {
		t.Error("it does not end once")
	}
	r.Add(second, noExpiry)
	if r.Done(first) || r.Len() != 1 {
		t.Error("the first one has ended the second")
	}
}

// TestEndedAt: a callback ends when the CLI says so, also if the reply to its answer is handled later, and else with that.
func TestEndedAt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(nil)
		for _, test := range []struct {
			say  func()
			want time.Duration
		}{
			{func() { r.ClaimOver("a") }, time.Second},
			{func() {}, 2 * time.Second},
			{func() { r.ClaimOver("a"); r.Awaited("a", r.Ends()) }, 2 * time.Second}, // it has said the opposite since
		} {
			p, began := &Pending{ID: "a"}, time.Now()
			r.Add(p, noExpiry)
			if _, err := r.Claim("a"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			test.say()
			time.Sleep(time.Second)
			if r.Answered(p, journal.Position{}); p.EndedAt.Sub(began) != test.want {
				t.Errorf("it has ended after %v, want %v", p.EndedAt.Sub(began), test.want)
			}
		}
	})
}

// Only the participant that gave an answer can repeat it, and only with the same content. For all others the
// callback has ended.
func TestRepeatedByItsResponder(t *testing.T) {
	t.Parallel()
	r := NewRegistry(nil)
	r.Add(&Pending{ID: "a"}, noExpiry)
	by := Responder{Participant: "p", Digest: [32]byte{1}}
	if _, err := r.ClaimBy("a", by); err != nil {
		t.Fatal(err)
	}
	at := journal.Position{Epoch: 1, Seq: 2}
	p, _ := r.Get("a")
	r.Answered(p, at)
	for name, tc := range map[string]struct {
		by   Responder
		want bool
	}{
		"the same answer":      {by, true},
		"another participant":  {Responder{Participant: "q", Digest: by.Digest}, false},
		"another answer":       {Responder{Participant: "p", Digest: [32]byte{2}}, false},
		"nobody in particular": {Responder{}, false},
	} {
		got, repeated, settled := r.Repeated("a", tc.by)
		if repeated != tc.want || tc.want && got != at || settled != nil {
			t.Errorf("%s: %v at %v, want %v", name, repeated, got, tc.want)
		}
	}
}

// While its first giving is under way, the same answer has to wait for how that ends.
func TestRepeatedWaits(t *testing.T) {
	t.Parallel()
	r := NewRegistry(nil)
	r.Add(&Pending{ID: "a"}, noExpiry)
	by := Responder{Participant: "p"}
	if _, err := r.ClaimBy("a", by); err != nil {
		t.Fatal(err)
	}
	if _, _, settled := r.Repeated("a", Responder{Participant: "q"}); settled != nil {
		t.Error("another answer has to wait")
	}
	_, repeated, settled := r.Repeated("a", by)
	if repeated || settled == nil {
		t.Fatal("it does not have to wait for the answer that is under way")
	}
	select {
	case <-settled:
		t.Error("the answer has been given")
	default:
	}
	p, _ := r.Get("a")
	r.Answered(p, journal.Position{Epoch: 1, Seq: 2})
	<-settled
	if _, repeated, _ := r.Repeated("a", by); !repeated {
		t.Error("the same answer is not recognized")
	}
}

// done ends the callback with an id, and reports whether it was pending.
func done(r *Registry, id string) bool {
	p, err := r.Get(id)
	return err == nil && r.Done(p)
}
