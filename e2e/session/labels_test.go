package session

import (
	"context"
	"maps"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Labels select the sessions of ListSessions and WatchSessions; a session enters and leaves a filtered watch with its
// labels.
func TestSessionLabels(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	ctx, cancel := context.WithCancel(r.Ctx)
	defer cancel()
	filter := &bridgev1.SessionFilter{Labels: map[string]string{"test": r.T.Name()}}
	stream, err := r.Client.EventStreams().WatchSessions(ctx, &bridgev1.WatchSessionsRequest{Filter: filter})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil { // now the watch is registered
		t.Fatal(err)
	}
	w := &changes{r: r, next: stream.Recv}
	options := r.Options()
	options.Labels = filter.Labels
	created := r.Session(options)
	born := created.ID()
	other := r.Session(r.Options())
	other.Ask("no label yet")
	w.until(born, bridgev1.SessionChange_SESSION_CHANGE_CREATED)
	if _, err := other.UpdateLabels(r.Ctx, filter.Labels); err != nil {
		t.Fatal(err)
	}
	// The first change of the other session is the one by which it matches.
	got, err := w.next()
	for err == nil && got.GetSession().GetSessionId() == born {
		got, err = w.next()
	}
	if err != nil || got.GetSession().GetSessionId() != other.ID() ||
		got.GetChange() != bridgev1.SessionChange_SESSION_CHANGE_UPDATED ||
		!maps.Equal(got.GetSession().GetLabels(), filter.Labels) {
		t.Errorf("a session that begins to match is reported as %v, %v", got, err)
	}
	if found := list(r, filter); len(found) != 2 || found[born] == nil || found[other.ID()] == nil {
		t.Errorf("sessions with the label: %v", found)
	}
	left, err := created.UpdateLabels(r.Ctx, map[string]string{"other": "1"}, "test")
	if err != nil || !maps.Equal(left, map[string]string{"other": "1"}) {
		t.Errorf("labels are %v, %v", left, err)
	}
	w.until(born, bridgev1.SessionChange_SESSION_CHANGE_UNMATCHED)
	if found := list(r, filter); len(found) != 1 || found[other.ID()] == nil {
		t.Errorf("sessions that still have the label: %v", found)
	}
	_, err = r.Client.Sessions().UpdateLabels(r.Ctx, &bridgev1.UpdateLabelsRequest{
		SessionId: born, Remove: []string{"no key"},
	})
	harness.WantError(t, err, codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
}
