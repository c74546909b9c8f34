package cluster

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

// A session is used through a replica that does not have it: a turn, its events, lists, and its end.
func TestAnyReplica(t *testing.T) {
	t.Parallel()
	d, _ := replicas(harness.NewScripted(t), 2)
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
	create(d[0], "second")
	answer(d[1], "second", "a new life")
	if n := strings.Count(conversation(d[1], "a new life"), "You said: first of second"); n != 1 {
		t.Errorf("the session that was created again knows the first prompt %d times", n)
	}
}

// The conversation of a session goes on at another replica after the end of its owner: the model gets what was said
// before, and no durable event is lost, doubled or moved.
func TestOwnerEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(owner *harness.Daemon, nats *natstest.Server){
		"killed":  func(owner *harness.Daemon, _ *natstest.Server) { owner.Stop(syscall.SIGKILL) },
		"drained": func(owner *harness.Daemon, _ *natstest.Server) { owner.Stop(syscall.SIGTERM) },
		"killed before its folder was saved": func(owner *harness.Daemon, nats *natstest.Server) {
			owner.Stop(syscall.SIGKILL)
			snapshots, err := nats.JetStream().Stream(t.Context(), "copilot_blob")
			if err == nil {
				err = snapshots.Purge(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, nats := replicas(harness.NewScripted(t), 2)
			create(d[0], "s")
			answer(d[1], "s", "second prompt")
			before := durable(d[1], "s")
			end(d[0], nats)
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
			d[1].Stop(syscall.SIGTERM)
			d[0].Eventually("the session is listed by the replica that is back", func() bool {
				list, err := d[0].Client.Sessions().ListSessions(d[0].Ctx, &bridgev1.ListSessionsRequest{})
				return err == nil && len(list.GetSessions()) == 1 && list.GetSessions()[0].GetSessionId() == "s"
			})
			if got := durable(d[0], "s"); len(got) < len(after) || !slices.Equal(got[:len(after)], after) {
				t.Errorf("the replica that is back shows first\n%v\nwant\n%v", got, after)
			}
			if got := answer(d[0], "s", "fourth prompt"); got != "You said: fourth prompt" {
				t.Errorf("the answer through the replica that is back is %q", got)
			}
		})
	}
}
