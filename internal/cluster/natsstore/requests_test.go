package natsstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend/backendtest"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natsstore"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

// sessionKey is the rule of package session.
func sessionKey(tenant, id string) string { return strings.TrimPrefix(tenant+"."+id, ".") }

// inTerm is the ownership of a process that owns all sessions in a term.
func inTerm(term uint64) natsstore.Ownership {
	return func(tenant, id string) (string, uint64) { return sessionKey(tenant, id), term }
}

func TestRequestsConform(t *testing.T) {
	t.Parallel()
	n := natstest.Start(t)
	clusters := make(chan string, 100)
	for i := range cap(clusters) {
		clusters <- fmt.Sprint("c", i)
	}
	backendtest.Requests(t, func(t testing.TB) backendtest.OpenRequests {
		s := open(t, n, <-clusters)
		return func() (backend.Requests, []backend.Request, error) {
			r := s.Requests(inTerm(1))
			list, err := r.All(t.Context())
			return r, list, err
		}
	})
}

func request(tenant, operation, id string) backend.Request {
	return backend.Request{
		Key: backend.Key{Tenant: tenant, Operation: operation, ID: id}, Sum: []byte("sum"),
		Expires: time.Now().Add(time.Hour),
	}
}

func answered(q backend.Request, answer string) backend.Request {
	q.Type, q.Answer, q.Bytes = "T", []byte(answer), int64(len(answer))
	return q
}

// ids returns the ids of requests in order of the alphabet.
func ids(list []backend.Request) (out []string) {
	for _, q := range list {
		out = append(out, q.Key.ID)
	}
	slices.Sort(out)
	return out
}

// The next owner of a session finds the requests that name the session, and any other request by its key.
func TestNextOwnerKnowsRequests(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, open func(string) *natsstore.Store) {
		first, second := open("c").Requests(inTerm(1)), open("c").Requests(inTerm(1))
		large := strings.Repeat("x", 2<<20)
		must(t, first.Add(answered(request("t", "Send\x00s", "answered"), "a")))
		must(t, first.Add(request("t", "Send\x00s", "begun")))
		must(t, first.Add(answered(request("t", "session.fork\x00s", "large"), large)))
		must(t, first.Add(answered(request("t", "Send\x00s2", "other session"), "a")))
		must(t, first.Add(answered(request("u", "Send\x00s", "other tenant"), "a")))
		must(t, first.Add(answered(request("t", backend.OpCreate, "create"), "made")))

		list, err := second.OfSession(t.Context(), "t.s")
		must(t, err)
		if got := ids(list); !slices.Equal(got, []string{"answered", "begun", "large"}) {
			t.Errorf("the requests of the session are %q", got)
		}
		for _, q := range list {
			if q.Key.ID == "large" && (len(q.Answer) > 0 || q.Bytes != int64(len(large))) {
				t.Errorf("a large answer is listed with %d of %d bytes", len(q.Answer), q.Bytes)
			}
		}
		_, answer, err := second.Answer(request("t", "session.fork\x00s", "large").Key)
		if err != nil || string(answer) != large {
			t.Errorf("the large answer has %d bytes, %v", len(answer), err)
		}
		q, ok, err := second.Find(t.Context(), request("t", backend.OpCreate, "create").Key)
		if err != nil || !ok || string(q.Answer) != "made" {
			t.Errorf("the request to create a session is %+v, %v, %v", q, ok, err)
		}
		if _, ok, err := second.Find(t.Context(), request("u", backend.OpCreate, "create").Key); ok || err != nil {
			t.Errorf("another tenant's request is found: %v, %v", ok, err)
		}
		all, err := second.All(t.Context())
		must(t, err)
		if len(all) != 6 {
			t.Errorf("there are the requests %q", ids(all))
		}
	})
}

// One of two processes records a request; the other one is refused until it has read the record.
func TestOneProcessRecordsARequest(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, open func(string) *natsstore.Store) {
		first, second := open("c").Requests(inTerm(1)), open("c").Requests(inTerm(1))
		q := request("t", "Send\x00s", "1")
		must(t, first.Add(q))
		mustBeStale(t, "a request", second.Add(q))
		mustBeStale(t, "an answer", second.Add(answered(q, "second")))
		failed := q
		failed.Over = true
		must(t, second.Add(failed)) // it has no record to remove
		must(t, first.Add(answered(q, "first")))

		if _, ok, err := second.Find(t.Context(), q.Key); !ok || err != nil {
			t.Fatalf("the record is not found: %v", err)
		}
		must(t, second.Add(answered(q, strings.Repeat("second", 200<<10))))
		mustBeStale(t, "a late answer", first.Add(answered(q, "late")))
		must(t, first.Add(failed))
		if _, answer, err := first.Answer(q.Key); err != nil || !strings.HasPrefix(string(answer), "second") {
			t.Errorf("the answer is %.20q, %v", answer, err)
		}
	})
}

// The owner of a session replaces what an earlier owner wrote after its term, and not the other way round. Keys without
// a session have no owner.
func TestLaterOwnerRecordsARequest(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, open func(string) *natsstore.Store) {
		frozen, owner := open("c").Requests(inTerm(1)), open("c").Requests(inTerm(2))
		q, create := request("t", "Send\x00s", "1"), request("t", backend.OpCreate, "1")
		must(t, frozen.Add(q))
		must(t, owner.Add(answered(q, "owner")))
		mustBeStale(t, "a late answer", frozen.Add(answered(q, "frozen")))
		over := q
		over.Over = true
		must(t, frozen.Add(over))
		if _, answer, err := owner.Answer(q.Key); err != nil || string(answer) != "owner" {
			t.Errorf("the answer is %q, %v", answer, err)
		}
		must(t, frozen.Add(create))
		mustBeStale(t, "a creation", owner.Add(create))
	})
}

// The server removes requests that have expired, and Compact those that were forgotten or are over.
func TestRequestsLeaveNothing(t *testing.T) {
	t.Parallel()
	s := open(t, natstest.Start(t), "c")
	r := s.Requests(inTerm(1))
	soon := answered(request("t", "Send\x00s", "soon"), strings.Repeat("x", 1<<20))
	soon.Expires = time.Now().Add(time.Second)
	forgotten, failed := answered(request("t", "Send\x00s", "forgotten"), "x"), request("t", "Send\x00s", "failed")
	for _, q := range []backend.Request{soon, forgotten, failed} {
		must(t, r.Add(q))
	}
	failed.Over = true
	must(t, r.Add(failed))
	r.Forget(forgotten.Key, forgotten.Expires)
	must(t, r.Compact(t.Context()))
	stream, err := s.JetStream().Stream(t.Context(), "c_request")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for left := uint64(1); left > 0; {
		info, err := stream.Info(ctx)
		must(t, err)
		left = info.State.Msgs
	}
}

// Each writer has its own part of a tenant's usage.
func TestUsageHasParts(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, open func(string) *natsstore.Store) {
		a, b := open("c"), open("c")
		large := `["` + strings.Repeat("x", 2<<20) + `"]`
		must(t, errors.Join(
			a.SaveUsage(t.Context(), "t", "a", []byte(`[1]`)), b.SaveUsage(t.Context(), "t", "b", []byte(large)),
			a.SaveUsage(t.Context(), "", "a", []byte(`[0]`)), b.SaveUsage(t.Context(), "t.t", "a.b", []byte(`[3]`)),
			a.SaveUsage(t.Context(), "t", "a", []byte(`[2]`)),
		))
		for tenant, want := range map[string]map[string]string{
			"t": {"a": `[2]`, "b": large}, "": {"a": `[0]`}, "t.t": {"a.b": `[3]`}, "none": {},
		} {
			parts, err := b.Usage(t.Context(), tenant)
			must(t, err)
			got := map[string]string{}
			for part, rows := range parts {
				got[part] = string(rows)
			}
			if !maps.Equal(got, want) {
				t.Errorf("the usage of %q has the parts %q", tenant, slices.Collect(maps.Keys(got)))
			}
		}
	})
}
