package forward

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// bySession is the group by which this replica asks others for usage, so that rows of deleted sessions are recognised.
const bySession = bridgev1.UsageGroup_USAGE_GROUP_SESSION

// usage serves GetUsage without a session: the sum of all replicas. The usage of deleted sessions belongs to the
// tenant, and each replica reports it: that of this replica counts.
func (a *asking) usage(ctx context.Context, r *bridgev1.GetUsageRequest) (any, error) {
	replicas := a.forwarder.replicas()
	if len(replicas) == 1 {
		return a.alone(ctx, r)
	}
	grouped := slices.Contains(r.GetGroupBy(), bySession)
	request := proto.CloneOf(r)
	if !grouped {
		request.GroupBy = append(request.GroupBy, bySession)
	}
	sums := &usageSums{grouped: grouped, rows: map[usageKey]*bridgev1.UsageRow{}}
	calls := newParts(ctx)
	for _, replica := range replicas {
		calls.run(func(ctx context.Context) error {
			reply, err := a.of(ctx, replica, request, &bridgev1.GetUsageResponse{})
			if err == nil {
				sums.add(reply.(*bridgev1.GetUsageResponse).GetRows(), replica.Here)
			}
			return err
		})
	}
	if err := calls.wait(); err != nil {
		return nil, err
	}
	nameAll(ctx, replicas)
	return &bridgev1.GetUsageResponse{Rows: sums.sorted()}, nil
}

// usageKey is a group of usage.
type usageKey struct{ day, model, owner, session string }

func keyOf(r *bridgev1.UsageRow) usageKey {
	return usageKey{r.GetDay(), r.GetModelId(), r.GetOwner(), r.GetSessionId()}
}

// compare orders groups as GetUsage does.
func (k usageKey) compare(o usageKey) int {
	return cmp.Or(cmp.Compare(k.day, o.day), cmp.Compare(k.model, o.model), cmp.Compare(k.owner, o.owner),
		cmp.Compare(k.session, o.session))
}

// usageSums adds the rows of replicas.
type usageSums struct {
	// grouped reports that the caller wants a row for each session.
	grouped bool

	mu   sync.Mutex
	rows map[usageKey]*bridgev1.UsageRow
}

// add adds the rows of a replica. deleted reports that rows of deleted sessions count.
func (s *usageSums) add(rows []*bridgev1.UsageRow, deleted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rows {
		if r.GetSessionId() == "" && !deleted {
			continue
		}
		if !s.grouped {
			r.SessionId = ""
		}
		k := keyOf(r)
		sum := s.rows[k]
		if sum == nil {
			s.rows[k] = r
			continue
		}
		sum.Turns += r.GetTurns()
		sum.Requests += r.GetRequests()
		sum.InputTokens += r.GetInputTokens()
		sum.OutputTokens += r.GetOutputTokens()
		sum.CacheReadTokens += r.GetCacheReadTokens()
		sum.CacheWriteTokens += r.GetCacheWriteTokens()
		sum.Cost += r.GetCost()
		sum.ApiDuration = durationpb.New(sum.GetApiDuration().AsDuration() + r.GetApiDuration().AsDuration())
	}
}

// sorted returns the rows in the order of GetUsage.
func (s *usageSums) sorted() []*bridgev1.UsageRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*bridgev1.UsageRow, 0, len(s.rows))
	for _, r := range s.rows {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *bridgev1.UsageRow) int { return keyOf(a).compare(keyOf(b)) })
	return out
}
