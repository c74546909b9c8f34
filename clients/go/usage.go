package copilot

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// UsageOptions selects what [Client.Usage] counts. Fields without a value select all.
type UsageOptions struct {
	// One row for each combination of these. Default: one row with the sum.
	By []UsageGroup
	// Only this session.
	SessionID string
	// Only matching sessions.
	Filter *SessionFilter
	// The first and the last day are the days of these times, in UTC.
	Start, End time.Time
}

// Usage returns what the caller's open sessions have used of models: requests, tokens, cost and turns.
func (c *Client) Usage(ctx context.Context, opts UsageOptions) ([]*bridgev1.UsageRow, error) {
	groups, err := valuesOf[bridgev1.UsageGroup](opts.By)
	if err != nil {
		return nil, err
	}
	req := &bridgev1.GetUsageRequest{SessionId: opts.SessionID, Filter: opts.Filter, GroupBy: groups}
	if !opts.Start.IsZero() {
		req.StartTime = timestamppb.New(opts.Start)
	}
	if !opts.End.IsZero() {
		req.EndTime = timestamppb.New(opts.End)
	}
	resp, err := c.sessions.GetUsage(ctx, req)
	return resp.GetRows(), FromError(err)
}
