package forward_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

// cut returns a page of a list, with tokens as a bridge has them.
func cut[T any](all []T, size int32, token string) (page []T, next string) {
	begin, _ := strconv.Atoi(token)
	end := min(begin+int(size), len(all))
	if end < len(all) {
		next = strconv.Itoa(end)
	}
	return all[begin:end], next
}

// listing makes each replica list sessions.
func listing(c *cluster, sessions map[string][]*bridgev1.Session) {
	for node, r := range c.replicas {
		all := sessions[node]
		slices.SortFunc(all, func(a, b *bridgev1.Session) int {
			return b.GetUpdateTime().AsTime().Compare(a.GetUpdateTime().AsTime())
		})
		r.backend.list = func(
			_ context.Context, q *bridgev1.ListSessionsRequest,
		) (*bridgev1.ListSessionsResponse, error) {
			out := &bridgev1.ListSessionsResponse{}
			out.Sessions, out.NextPageToken = cut(all, q.GetPageSize(), q.GetPageToken())
			return out, nil
		}
	}
}

// TestListSessions compares the pages of all replicas with one sorted list, for any split of the sessions.
func TestListSessions(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b", "c")
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
	sessions := map[string][]*bridgev1.Session{}
	var want []string
	for i := range 100 {
		s := &bridgev1.Session{SessionId: fmt.Sprintf("s%02d", i),
			UpdateTime: timestamppb.New(time.Unix(int64(1000-i), 0))}
		want = append(want, s.GetSessionId())
		owner := []string{"a", "b", "c"}[min(random.IntN(4), 2)]
		c.set(s.GetSessionId(), owner)
		sessions[owner] = append(sessions[owner], s)
		if i%10 == 0 { // the histories of others have it too: an old state
			old := proto.CloneOf(s)
			old.UpdateTime = timestamppb.New(time.Unix(int64(500-i), 0))
			other := map[string]string{"a": "b", "b": "c", "c": "a"}[owner]
			sessions[other] = append(sessions[other], old)
		}
	}
	listing(c, sessions)
	for _, size := range []int32{1, 7, 100, 1000} {
		var got []string
		for token, pages := "", 0; ; pages++ {
			reply, err := c.replicas["b"].sessions().ListSessions(t.Context(),
				&bridgev1.ListSessionsRequest{PageSize: size, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			if len(reply.GetSessions()) > int(size) || pages > 2*len(want) {
				t.Fatalf("size %d: page %d has %d sessions", size, pages, len(reply.GetSessions()))
			}
			for _, s := range reply.GetSessions() {
				got = append(got, s.GetSessionId())
			}
			if token = reply.GetNextPageToken(); token == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("size %d: %q", size, got)
		}
	}
}

func TestListsReportErrors(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	listing(c, nil)
	for _, token := range []string{
		"5", "replicas.!", "replicas.e30x", "replicas.eyJhIjp7InMiOi0xfX0", "replicas.eyJhIjp7InMiOjF9fQ\n",
		"replicas.eyJhIjp7InMiOjAxfX0", "replicas.e30", "replicas.",
	} {
		_, err := c.replicas["a"].sessions().ListSessions(t.Context(), &bridgev1.ListSessionsRequest{PageToken: token})
		if st := grpcstatus.Convert(err); st.Code() != codes.InvalidArgument || status.Field(st) != "page_token" {
			t.Errorf("token %q: %v", token, err)
		}
	}
	if err := c.replicas["b"].Stop(); err != nil {
		t.Fatal(err)
	}
	_, err := c.replicas["a"].sessions().ListSessions(t.Context(), &bridgev1.ListSessionsRequest{})
	unavailable(t, err) // a list that lacks sessions would be wrong
	c.mu.Lock()
	delete(c.address, "b")
	c.mu.Unlock()
	if _, err := c.replicas["a"].sessions().ListSessions(t.Context(), &bridgev1.ListSessionsRequest{}); err != nil {
		t.Errorf("without the dead replica: %v", err)
	}
}

func (b *backend) ListPending(
	_ context.Context, r *bridgev1.ListPendingRequest,
) (*bridgev1.ListPendingResponse, error) {
	out := &bridgev1.ListPendingResponse{}
	out.Callbacks, out.NextPageToken = cut(b.callbacks, r.GetPageSize(), r.GetPageToken())
	return out, nil
}

func (b *backend) ListShareOffers(
	_ context.Context, r *bridgev1.ListShareOffersRequest,
) (*bridgev1.ListShareOffersResponse, error) {
	out := &bridgev1.ListShareOffersResponse{}
	out.Offers, out.NextPageToken = cut(b.offers, r.GetPageSize(), r.GetPageToken())
	return out, nil
}

func TestListPending(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	for i := range 5 {
		r := c.replicas[[]string{"a", "b"}[i%2]]
		r.backend.callbacks = append(r.backend.callbacks, &bridgev1.Callback{CallbackId: strconv.Itoa(i),
			CreateTime: timestamppb.New(time.Unix(int64(i), 0))})
	}
	got, token := "", ""
	for {
		reply, err := bridgev1.NewCallbackServiceClient(c.replicas["a"].Conn).ListPending(t.Context(),
			&bridgev1.ListPendingRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range reply.GetCallbacks() {
			got += p.GetCallbackId()
		}
		if token = reply.GetNextPageToken(); token == "" {
			break
		}
	}
	if got != "01234" {
		t.Errorf("callbacks %s", got)
	}
}

func TestListShareOffers(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	c.replicas["a"].backend.offers = []*bridgev1.ShareOffer{{SessionId: "x/1"}, {SessionId: "x/3"}}
	c.replicas["b"].backend.offers = []*bridgev1.ShareOffer{{SessionId: "x/2"}, {SessionId: "x/4"}}
	reply, err := c.replicas["a"].sessions().ListShareOffers(t.Context(), &bridgev1.ListShareOffersRequest{})
	if err != nil || len(reply.GetOffers()) != 4 {
		t.Fatalf("%v, %v", reply, err)
	}
	for i, offer := range reply.GetOffers() {
		if offer.GetSessionId() != fmt.Sprintf("x/%d", i+1) {
			t.Errorf("offer %d: %v", i, offer)
		}
	}
}

func (b *backend) GetUsage(
	_ context.Context, r *bridgev1.GetUsageRequest,
) (*bridgev1.GetUsageResponse, error) {
	out := &bridgev1.GetUsageResponse{}
	byModel := slices.Contains(r.GetGroupBy(), bridgev1.UsageGroup_USAGE_GROUP_MODEL)
	for _, row := range b.usage {
		row := proto.CloneOf(row)
		if !byModel {
			row.ModelId = ""
		}
		out.Rows = append(out.Rows, row)
	}
	if !slices.Contains(r.GetGroupBy(), bridgev1.UsageGroup_USAGE_GROUP_SESSION) {
		return nil, fmt.Errorf("groups %v", r.GetGroupBy())
	}
	return out, nil
}

// usageOf is a row of a session.
func usageOf(session, model string, n int64) *bridgev1.UsageRow {
	return &bridgev1.UsageRow{SessionId: session, ModelId: model, Turns: n, Requests: n, InputTokens: n,
		OutputTokens:    n,
		CacheReadTokens: n, CacheWriteTokens: n, Cost: float64(n), ApiDuration: durationpb.New(time.Duration(n))}
}

func TestGetUsage(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	deleted := usageOf("", "m1", 100) // of the tenant, so every replica has it
	c.replicas["a"].backend.usage = []*bridgev1.UsageRow{deleted, usageOf("one", "m1", 1), usageOf("one", "m2", 2)}
	c.replicas["b"].backend.usage = []*bridgev1.UsageRow{deleted, usageOf("two", "m1", 4)}
	for name, tc := range map[string]struct {
		groups []bridgev1.UsageGroup
		want   []*bridgev1.UsageRow
	}{
		"the sum":  {nil, []*bridgev1.UsageRow{usageOf("", "", 107)}},
		"by model": {[]bridgev1.UsageGroup{2}, []*bridgev1.UsageRow{usageOf("", "m1", 105), usageOf("", "m2", 2)}},
		"by session": {[]bridgev1.UsageGroup{3}, []*bridgev1.UsageRow{usageOf("", "", 100), usageOf("one", "", 3),
			usageOf("two", "", 4)}},
	} {
		reply, err := c.replicas["b"].sessions().GetUsage(t.Context(), &bridgev1.GetUsageRequest{GroupBy: tc.groups})
		if err != nil || !proto.Equal(reply, &bridgev1.GetUsageResponse{Rows: tc.want}) {
			t.Errorf("%s: %v, %v", name, reply.GetRows(), err)
		}
	}
}
