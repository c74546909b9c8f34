package idempotency

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// client makes requests, and counts how often they are carried out.
type client struct {
	t     *testing.T
	s     *Runner
	calls map[backend.Key]int
}

func (c *client) do(k backend.Key, answer string) error {
	c.t.Helper()
	_, err := do(c.t.Context(), c.s, k, wrapperspb.String(k.ID), nil, func() (proto.Message, error) {
		c.calls[k]++
		if answer == "fail" {
			return nil, errors.New("no")
		}
		return wrapperspb.String(answer), nil
	})
	return err
}

// remembered makes a request once more, and fails the test if it is carried out again.
func (c *client) remembered(k backend.Key) {
	c.t.Helper()
	if err := c.do(k, "again"); err != nil || c.calls[k] != 1 {
		c.t.Errorf("%q was carried out %d times: %v", k, c.calls[k], err)
	}
}

// refused makes a request for which there is no room.
func (c *client) refused(k backend.Key, limit string, retry time.Duration) {
	c.t.Helper()
	err := c.do(k, "refused")
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Reason != fault.LimitExceeded || f.Metadata["limit"] != limit || c.calls[k] != 0 {
		c.t.Fatalf("%q: carried out %d times, error %v, want %s", k, c.calls[k], err, limit)
	}
	if f.RetryAfter != retry {
		c.t.Errorf("%q may come again in %v, want %v", k, f.RetryAfter, retry)
	}
}

func (c *client) admitted(k backend.Key, answer string) {
	c.t.Helper()
	if err := c.do(k, answer); err != nil || c.calls[k] != 1 {
		c.t.Fatalf("%q was carried out %d times: %v", k, c.calls[k], err)
	}
}

// A tenant that has used up its quota is refused; nothing that is remembered goes, of no
// tenant, and there is room again when its oldest request has expired.
func TestQuotaRefusesInsteadOfForgetting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, Quota{Requests: 6}, Quota{})
		c := &client{t: t, s: s, calls: map[backend.Key]int{}}
		c.admitted(key("b", "other"), "x")
		of := func(id int) backend.Key {
			k := key("a", strconv.Itoa(id))
			k.Operation = []string{backend.OpSend, backend.OpCreate}[id%2]
			return k
		}
		for id := range 6 {
			c.admitted(of(id), "x")
			time.Sleep(time.Hour) // the bubble's clock
		}
		for id := 6; id < 100; id++ {
			c.refused(of(id), "remembered_requests", Keep-6*time.Hour)
		}
		c.admitted(key("b", "second"), "x")
		for id := range 6 {
			c.remembered(of(id))
		}
		c.remembered(key("b", "other"))
		if err := c.do(key("a", ""), "x"); err != nil {
			t.Errorf("without an id: %v", err)
		}
		time.Sleep(Keep - 6*time.Hour + time.Second)
		c.admitted(of(6), "x")
		c.refused(of(8), "remembered_requests", time.Hour-time.Second)
		c.remembered(of(1))
	})
}

// One kind of requests uses at most half of a tenant's quota; the end of a turn whose message
// was admitted always has room.
func TestQuotaByKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, Quota{Requests: 8}, Quota{})
		c := &client{t: t, s: s, calls: map[backend.Key]int{}}
		cli := func(id int) backend.Key {
			return backend.Key{Tenant: "a", Operation: "session.plan.update\x00s", ID: strconv.Itoa(id)}
		}
		for id := range 4 {
			c.admitted(cli(id), "x")
		}
		c.refused(cli(4), "remembered_requests", Keep)
		for _, operation := range []string{
			backend.OpSendAndWait + "\x00s", backend.OpRun, backend.OpResolve, backend.OpAttach,
		} {
			c.admitted(backend.Key{Tenant: "a", Operation: operation, ID: "1"}, "x")
		}
		c.refused(key("a", "2"), "remembered_requests", Keep)
		c.admitted(backend.Key{Tenant: "a", Operation: backend.OpTurnEnd + "\x00s", ID: "1"}, "x")
	})
}

// Answers count with their bytes, failures not at all.
func TestQuotaOfBytes(t *testing.T) {
	t.Parallel()
	const answers = 10
	large := strings.Repeat("x", 10_000)
	size := int64(proto.Size(wrapperspb.String(large)) + Overhead)
	s := limited(t, Quota{Bytes: 2 * answers * size}, Quota{})
	c := &client{t: t, s: s, calls: map[backend.Key]int{}}
	for id := range 1000 {
		if err := c.do(key("a", strconv.Itoa(id)), "fail"); err == nil {
			t.Fatal("did not fail")
		}
	}
	for id := range answers {
		c.calls = map[backend.Key]int{}
		c.admitted(key("a", strconv.Itoa(id)), large)
	}
	err := c.do(key("a", "more"), large)
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Metadata["limit"] != "remembered_bytes" {
		t.Errorf("beyond the quota of bytes: %v", err)
	}
	c.calls = map[backend.Key]int{}
	for id := range answers {
		if err := c.do(key("a", strconv.Itoa(id)), "again"); err != nil || len(c.calls) > 0 {
			t.Errorf("carried out again: %v, %v", c.calls, err)
		}
	}
}

// When all tenants together have used the total, a tenant still has its equal share of it.
func TestQuotaOfAllIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, Quota{}, Quota{Requests: 10})
		c := &client{t: t, s: s, calls: map[backend.Key]int{}}
		for id := range 10 {
			c.admitted(key("noisy", strconv.Itoa(id)), "x")
		}
		c.refused(key("noisy", "more"), "remembered_requests", Keep)
		for id := range 5 {
			c.admitted(key("quiet", strconv.Itoa(id)), "x")
		}
		c.refused(key("quiet", "more"), "remembered_requests", Keep)
		for id := range 10 {
			c.remembered(key("noisy", strconv.Itoa(id)))
		}
	})
}

// The same id of another tenant, another call or another session is another request.
func TestKeysAreATenantsOwn(t *testing.T) {
	t.Parallel()
	s, _ := newRunner(t)
	c := &client{t: t, s: s, calls: map[backend.Key]int{}}
	keys := []backend.Key{
		{Operation: "Send\x00s", ID: "1"}, {Tenant: "a", Operation: "Send\x00s", ID: "1"}, {Tenant: "b", Operation: "Send\x00s", ID: "1"},
		{Tenant: "a", Operation: "Send\x00t", ID: "1"}, {Tenant: "a", Operation: "Resolve", ID: "1"},
	}
	for _, k := range keys {
		c.admitted(k, "x")
	}
	for _, k := range keys {
		c.remembered(k)
	}
}

// A request that is under way or unresolved keeps its entry, and so do the entries of an earlier process under
// the same quota.
func TestRememberedRequestsStay(t *testing.T) {
	t.Parallel()
	log := &kept{answer: wrapperspb.String("of the log")}
	s := limited(t, Quota{Requests: 4}, Quota{})
	earlier := func(tenant, id string) backend.Request {
		return backend.Request{Key: key(tenant, id), Sum: digest(t, wrapperspb.String(id)), Expires: time.Now().Add(time.Hour)}
	}
	var requests []backend.Request
	for id := range 10 { // with another quota
		q := earlier("a", strconv.Itoa(id))
		q.Type, q.Bytes = answerType, 5000
		requests = append(requests, q)
	}
	doubt := earlier("a", "doubt")
	doubt.Since = []byte("then")
	requests = append(requests, doubt)
	for id := range 5 { // before there were quotas
		q := earlier("b", strconv.Itoa(id))
		q.Type, q.Old = answerType, true
		requests = append(requests, q)
	}
	s.Restore(log, requests)
	c := &client{t: t, s: s, calls: map[backend.Key]int{}}
	for id := range 10 {
		if err := c.do(key("a", strconv.Itoa(id)), "again"); err != nil || len(c.calls) > 0 {
			t.Errorf("%d was carried out again: %v, %v", id, c.calls, err)
		}
	}
	settled := false
	_, err := do(t.Context(), s, key("a", "doubt"), wrapperspb.String("doubt"), settlement(func(context.Context, []byte) (proto.Message, error) {
		settled = true
		return wrapperspb.String("settled"), nil
	}), func() (proto.Message, error) { return nil, errors.New("made again") })
	if err != nil || !settled {
		t.Errorf("the request in doubt was forgotten: %v", err)
	}
	for _, id := range []string{"3", "4"} { // the last two: half of four
		if err := c.do(key("b", id), "again"); err != nil || len(c.calls) > 0 {
			t.Errorf("%s was carried out again: %v, %v", id, c.calls, err)
		}
	}
	if want := `forgotten "0"|forgotten "1"|forgotten "2"`; !strings.HasPrefix(strings.Join(log.lines, "|"), want) {
		t.Errorf("the log has %q, want %q first", log.lines, want)
	}
}

// A large answer is only in the log, and is read from there when its request is repeated.
func TestLargeAnswersAreRead(t *testing.T) {
	t.Parallel()
	log := &kept{answer: wrapperspb.String("of the log")}
	s := logging(t, log)
	for id, size := range map[string]int{"small": 10, "large": 2 * backend.MaxInline} {
		made := wrapperspb.String(strings.Repeat("x", size))
		for range 2 {
			got, err := do(t.Context(), s, key("", id), wrapperspb.String(id), nil, func() (proto.Message, error) { return made, nil })
			if err != nil || got != made && (id != "large" || !proto.Equal(got, log.answer)) {
				t.Errorf("the %s answer is %v, %v", id, got, err)
			}
		}
	}
	if n := strings.Count(strings.Join(log.lines, "|"), "read"); n != 1 {
		t.Errorf("the log was read %d times: %q", n, log.lines)
	}
}
