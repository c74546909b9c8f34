package copilot_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func (f *fake) GetUsage(_ context.Context, r *bridgev1.GetUsageRequest) (*bridgev1.GetUsageResponse, error) {
	f.unary <- r
	return &bridgev1.GetUsageResponse{Rows: []*bridgev1.UsageRow{{Requests: 3}}}, nil
}

func TestUsage(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	start, end := time.Unix(1000, 0), time.Unix(2000, 0)
	filter := &copilot.SessionFilter{Labels: map[string]string{"team": "red"}}
	rows, err := c.Usage(testContext(t), copilot.UsageOptions{
		By:        []copilot.UsageGroup{copilot.UsageByDay, copilot.UsageByOwner},
		SessionID: "s1", Filter: filter, Start: start, End: end,
	})
	if err != nil || len(rows) != 1 || rows[0].GetRequests() != 3 {
		t.Errorf("rows %v, %v", rows, err)
	}
	want := &bridgev1.GetUsageRequest{
		GroupBy:   []bridgev1.UsageGroup{bridgev1.UsageGroup_USAGE_GROUP_DAY, bridgev1.UsageGroup_USAGE_GROUP_OWNER},
		SessionId: "s1", Filter: filter, StartTime: timestamppb.New(start), EndTime: timestamppb.New(end),
	}
	if sent := receive(t, f.unary, "request"); !proto.Equal(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
	if _, err := c.Usage(testContext(t), copilot.UsageOptions{}); err != nil {
		t.Error(err)
	}
	if sent := receive(t, f.unary, "request"); !proto.Equal(sent, &bridgev1.GetUsageRequest{}) {
		t.Errorf("sent %v for everything", sent)
	}
}

// Words that the API does not have are refused before anything is sent.
func TestWrongWords(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	ctx := testContext(t)
	pending := func() error {
		for _, err := range c.WatchPending(ctx, copilot.PendingOptions{Kinds: []copilot.CallbackKind{"riddle"}}) {
			return err
		}
		return nil
	}
	created := func(opts copilot.SessionOptions) error {
		_, err := c.CreateSession(ctx, opts)
		return err
	}
	resumed := func(opts copilot.SessionOptions) error {
		_, err := c.ResumeSession(ctx, "s1", opts)
		return err
	}
	_, usage := c.Usage(ctx, copilot.UsageOptions{By: []copilot.UsageGroup{"week"}})
	for want, err := range map[string]error{
		`copilot: UsageGroup has no "week"`:      usage,
		`copilot: CallbackKind has no "riddle"`:  pending(),
		`copilot: Lifetime has no "forever"`:     created(copilot.SessionOptions{Lifetime: "forever"}),
		`copilot: Lifetime has no "Keep"`:        resumed(copilot.SessionOptions{Lifetime: "Keep"}),
		`copilot: OnInterruption has no "retry"`: created(copilot.SessionOptions{InterruptedTurns: "retry"}),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	select {
	case sent := <-f.unary:
		t.Errorf("sent %v", sent)
	default:
	}
}
