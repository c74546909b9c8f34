package inbox_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/inbox"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// frame makes a frame: "+s/c" requests a callback, "-s/c" resolves it, "!s" unmatches a session.
func frame(text string) *bridgev1.WatchPendingResponse {
	session, callback, _ := strings.Cut(strings.TrimLeft(text, "+-!"), "/")
	switch {
	case text == "caught up":
		return &bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_CaughtUp{}}
	case text == "reset":
		return &bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_Reset_{}}
	case text == "heartbeat":
		return &bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_Heartbeat{}}
	case text[0] == '+':
		return &bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_Requested{
			Requested: &bridgev1.Callback{SessionId: session, CallbackId: callback},
		}}
	case text[0] == '-':
		return &bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_Resolved{
			Resolved: &bridgev1.PendingResolved{
				SessionId: session, Resolved: &bridgev1.CallbackResolved{CallbackId: callback},
			},
		}}
	default:
		return &bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_Unmatched{
			Unmatched: &bridgev1.PendingUnmatched{SessionId: session},
		}}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	var list inbox.List
	for _, step := range []struct{ frame, want string }{
		{"+s/a", "s/a waits"},
		{"+s/b", "s/b waits"},
		{"+t/a", "t/a waits"},
		{"caught up", ""},
		{"heartbeat", ""},
		{"-s/b", "s/b resolved"},
		{"-s/b", ""},
		{"reset", ""},
		{"+t/a", ""},
		{"+s/c", "s/c waits"},
		{"caught up", "s/a ended"},
		{"+t/b", "t/b waits"},
		{"!t", "t/a ended, t/b ended"},
		{"!t", ""},
		{"restart", ""},
		{"-s/c", "s/c resolved"},
		{"caught up", ""},
		{"+s/c", "s/c waits"},
		{"restart", ""},
		{"caught up", "s/c ended"},
	} {
		var changes []inbox.Change
		if step.frame == "restart" {
			list.Restart()
		} else {
			changes = list.Take(frame(step.frame))
		}
		var got []string
		for _, c := range changes {
			how := " waits"
			switch {
			case c.Resolved != nil:
				how = " resolved"
			case c.Ended:
				how = " ended"
			}
			got = append(got, c.Callback.GetSessionId()+"/"+c.Callback.GetCallbackId()+how)
		}
		if text := strings.Join(got, ", "); text != step.want || slices.Contains(got, "") {
			t.Errorf("after %q: %q, want %q", step.frame, text, step.want)
		}
	}
}
