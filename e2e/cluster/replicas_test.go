package cluster

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A session is used through a replica that does not have it: a turn, its events, lists, and its end.
func TestAnyReplica(t *testing.T) {
	t.Parallel()
	d := replicas(harness.NewScripted(t), 2)
	create(d[0], "shared")
	if got := answer(d[1], "shared", "through the other"); got != "You said: through the other" {
		t.Errorf("the answer through the other replica is %q", got)
	}
	if here, there := durable(d[0], "shared"), durable(d[1], "shared"); len(here) == 0 || !slices.Equal(here, there) {
		t.Errorf("the replicas show other events:\n%v\n%v", here, there)
	}
	for i := range d {
		list, err := d[i].Client.Sessions().ListSessions(d[i].Ctx, &bridgev1.ListSessionsRequest{})
		if err != nil || len(list.GetSessions()) != 1 || list.GetSessions()[0].GetSessionId() != "shared" {
			t.Errorf("replica %d lists %v, %v", i, list.GetSessions(), err)
		}
	}
	create(d[1], "second")
	_, err := d[0].Client.Sessions().DeleteSession(d[0].Ctx, &bridgev1.DeleteSessionRequest{SessionId: "second"})
	if err != nil {
		t.Error(err)
	}
	_, err = d[1].Client.Sessions().GetSession(d[1].Ctx, &bridgev1.GetSessionRequest{SessionId: "second"})
	harness.WantReason(t, err, bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
}

// The conversation of a session goes on at another replica after the end of its owner: the model gets what was said
// before, and no durable event is lost, doubled or moved.
func TestOwnerEnds(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "drained": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := replicas(harness.NewScripted(t), 2)
			create(d[0], "s")
			answer(d[1], "s", "second prompt")
			before := durable(d[1], "s")
			d[0].Stop(sig)
			d[1].Eventually("the session is at the other replica", func() bool {
				_, err := d[1].Client.Sessions().GetSession(d[1].Ctx, &bridgev1.GetSessionRequest{SessionId: "s"})
				return err == nil
			})
			if got := answer(d[1], "s", "third prompt"); got != "You said: third prompt" {
				t.Errorf("the answer is %q", got)
			}
			sent := conversation(d[1], "third prompt")
			for _, said := range []string{"first of s", "second prompt", "You said: second prompt"} {
				if !strings.Contains(sent, said) {
					t.Errorf("the model was not sent %q", said)
				}
			}
			after := durable(d[1], "s")
			if len(before) == 0 || len(after) <= len(before) || !slices.Equal(after[:len(before)], before) {
				t.Errorf("events before:\n%v\nafter:\n%v", before, after)
			}
			d[0].Start()
			if got := durable(d[0], "s"); !slices.Equal(got, after) {
				t.Errorf("the replica that is back shows\n%v\nwant\n%v", got, after)
			}
			if got := answer(d[0], "s", "fourth prompt"); got != "You said: fourth prompt" {
				t.Errorf("the answer through the replica that is back is %q", got)
			}
		})
	}
}
