package session

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// The usage of a session is what the events of its requests to the model say.
func TestSessionUsage(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	began := time.Now()
	s := r.Session(r.Options())
	s.Ask("hello")
	s.Ask("and again")
	var input, output int64
	requests := map[string]int64{}
	for _, e := range s.Recorded() {
		if u := e.GetEvent().GetAssistantUsage(); u != nil {
			requests[u.GetModel()]++
			input += u.GetInputTokens()
			output += u.GetOutputTokens()
		}
	}
	out, err := r.Client.Sessions().GetUsage(r.Ctx, &bridgev1.GetUsageRequest{
		SessionId: s.ID(), StartTime: timestamppb.New(began), GroupBy: []bridgev1.UsageGroup{
			bridgev1.UsageGroup_USAGE_GROUP_DAY, bridgev1.UsageGroup_USAGE_GROUP_MODEL,
			bridgev1.UsageGroup_USAGE_GROUP_SESSION,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got bridgev1.UsageRow
	for _, row := range out.GetRows() { // two around midnight
		if row.GetDay() < began.UTC().Format(time.DateOnly) || row.GetSessionId() != s.ID() ||
			requests[row.GetModelId()] == 0 {
			t.Errorf("row %v", row)
		}
		got.Turns += row.GetTurns()
		got.Requests += row.GetRequests()
		got.InputTokens += row.GetInputTokens()
		got.OutputTokens += row.GetOutputTokens()
	}
	if got.GetTurns() != 2 || got.GetRequests() != 2 ||
		got.GetInputTokens() != input || got.GetOutputTokens() != output || input == 0 || output == 0 {
		t.Errorf("usage %v, want 2 turns and requests with %d and %d tokens (%v)", &got, input, output, requests)
	}
}
