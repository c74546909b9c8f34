package manage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/usage"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// maxUsageRows bounds the rows of a reply.
const maxUsageRows = 10_000

// usageKey is a group of usage; members that the request does not group by are empty.
type usageKey struct{ day, model, owner, session string }

func (k usageKey) compare(o usageKey) int {
	return cmp.Or(cmp.Compare(k.day, o.day), cmp.Compare(k.model, o.model), cmp.Compare(k.owner, o.owner),
		cmp.Compare(k.session, o.session))
}

// usageQuery is a GetUsageRequest that has been checked.
type usageQuery struct {
	first, last string // days; empty without a bound
	groups      []bridgev1.UsageGroup
}

// GetUsage sums the usage of sessions.
func (svc *Sessions) GetUsage(
	ctx context.Context, r *bridgev1.GetUsageRequest,
) (*bridgev1.GetUsageResponse, error) {
	q, err := parseUsage(r)
	if err != nil {
		return nil, err
	}
	entries := svc.cfg.Store.Visible(ctx)
	if r.GetSessionId() != "" {
		e, err := svc.cfg.Store.OpenEntry(ctx, r.GetSessionId())
		if err != nil {
			return nil, err
		}
		entries = []*sessions.Entry{e}
	}
	sums := map[usageKey]usage.Sums{}
	for _, e := range entries {
		s := e.Snapshot(caller.From(ctx).Tenant)
		if !sessions.FitsFilter(s, r.GetFilter()) {
			continue
		}
		q.sum(sums, e.Session.Usage(), s)
		if len(sums) > maxUsageRows {
			return nil, errUsageRows()
		}
	}
	if r.GetSessionId() == "" && proto.Size(r.GetFilter()) == 0 {
		q.sum(sums, svc.cfg.Store.Deleted.Rows(caller.From(ctx).Tenant), nil)
	}
	if len(sums) > maxUsageRows {
		return nil, errUsageRows()
	}
	return usageRows(sums), nil
}

func errUsageRows() error {
	return fault.New(fault.LimitExceeded,
		"the usage has more than %d rows: select fewer sessions or days, or group by less", maxUsageRows).
		With("limit", "usage rows")
}

// parseUsage checks a request, except its session.
func parseUsage(r *bridgev1.GetUsageRequest) (q usageQuery, err error) {
	if err := sessions.CheckFilter(r.GetFilter(), "filter"); err != nil {
		return q, err
	}
	for i, group := range r.GetGroupBy() {
		at := fmt.Sprintf("group_by[%d]", i)
		if err := fields.Known(group, at); err != nil {
			return q, err
		}
		if group == bridgev1.UsageGroup_USAGE_GROUP_UNSPECIFIED || slices.Contains(q.groups, group) {
			return q, fault.New(fault.InvalidField, "%s is %v: name each group once", at, group).WithField(at)
		}
		q.groups = append(q.groups, group)
	}
	if q.first, err = usageDay(r.GetStartTime(), "start_time"); err != nil {
		return q, err
	}
	q.last, err = usageDay(r.GetEndTime(), "end_time")
	return q, err
}

// usageDay returns the day of a time; empty for none.
func usageDay(t *timestamppb.Timestamp, field string) (string, error) {
	if t == nil {
		return "", nil
	}
	if err := t.CheckValid(); err != nil {
		return "", fault.Wrap(err, fault.InvalidField, "%s", field).WithField(field)
	}
	return t.AsTime().Format(time.DateOnly), nil
}

// sum adds the usage of a session to its groups; nil stands for the deleted sessions.
func (q *usageQuery) sum(sums map[usageKey]usage.Sums, of usage.Usage, s *bridgev1.Session) {
	for _, row := range of {
		if row.Day < q.first || q.last != "" && row.Day > q.last {
			continue
		}
		var k usageKey
		for _, group := range q.groups {
			switch group {
			case bridgev1.UsageGroup_USAGE_GROUP_DAY:
				k.day = row.Day
			case bridgev1.UsageGroup_USAGE_GROUP_MODEL:
				k.model = row.Model
			case bridgev1.UsageGroup_USAGE_GROUP_SESSION:
				k.session = s.GetSessionId()
			case bridgev1.UsageGroup_USAGE_GROUP_OWNER:
				k.owner = s.GetOwner()
			}
		}
		total := sums[k]
		total.Add(row.Sums)
		sums[k] = total
	}
}

// usageRows returns sums in the form of the API, in order.
func usageRows(sums map[usageKey]usage.Sums) *bridgev1.GetUsageResponse {
	out := &bridgev1.GetUsageResponse{}
	for _, k := range slices.SortedFunc(maps.Keys(sums), usageKey.compare) {
		s := sums[k]
		out.Rows = append(out.Rows, &bridgev1.UsageRow{
			Day: k.day, ModelId: k.model, SessionId: k.session, Owner: k.owner, Turns: s.Turns, Requests: s.Requests,
			InputTokens: s.Input, OutputTokens: s.Output, CacheReadTokens: s.CacheRead, CacheWriteTokens: s.CacheWrite,
			Cost: s.Cost, ApiDuration: durationpb.New(time.Duration(s.Millis) * time.Millisecond),
		})
	}
	return out
}
