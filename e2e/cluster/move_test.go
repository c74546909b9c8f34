package cluster

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// sessionsOf returns how many sessions each replica has, as one of them knows; "draining" marks a replica that drains.
func sessionsOf(d *harness.Daemon) map[string]string {
	d.T.Helper()
	list, err := d.Client.Runtimes().ListNodes(d.Ctx, &bridgev1.ListNodesRequest{})
	if err != nil {
		d.T.Fatal(err)
	}
	out := map[string]string{}
	for _, n := range list.GetNodes() {
		out[n.GetName()] = fmt.Sprint(n.GetSessions())
		if n.GetDraining() {
			out[n.GetName()] += " draining"
		}
	}
	return out
}

// owner returns the name of the replica that has a session.
func owner(d *harness.Daemon, id string) string {
	d.T.Helper()
	var header metadata.MD
	_, err := d.Client.Sessions().GetSession(d.Ctx, &bridgev1.GetSessionRequest{SessionId: id}, grpc.Header(&header))
	if err != nil {
		d.T.Fatal(err)
	}
	return strings.Join(header.Get("copilot-owner-node"), " ")
}

// collect reads the durable events of a session through a replica, until the test ends.
func collect(d *harness.Daemon, id string) <-chan string {
	ctx, cancel := context.WithCancel(d.Ctx)
	d.T.Cleanup(cancel)
	got := make(chan string, 1000)
	go func() {
		all := copilot.WithFilter(&bridgev1.EventFilter{IncludeLarge: true})
		for e, err := range d.Client.Session(id).Events(ctx, copilot.FromBeginning(), all) {
			switch {
			case err != nil && ctx.Err() == nil:
				got <- err.Error()
			case err == nil && !e.GetEvent().GetEphemeral():
				got <- e.GetEvent().GetId()
			}
		}
	}()
	return got
}

// take returns the next n that a reader has collected.
func take(d *harness.Daemon, from <-chan string, n int) (ids []string) {
	d.T.Helper()
	for range n {
		ids = append(ids, harness.Await(d.Scripted, from, "an event"))
	}
	return ids
}

// A session moves to and fro while streams are open through both replicas and a participant offers a tool: each durable
// event comes once, the agent knows what was said, and the participant is asked.
func TestMoveSession(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("work", harness.Call("works", nil)),
		harness.OnResult("works", harness.Say("{{tool_result}}")))
	d, _ := replicas(st, 2)
	create(d[0], "s")
	works := copilot.NewTool("works", "A test's tool.", func(context.Context, struct{}) (string, error) {
		return "by the participant", nil
	})
	_, err := d[1].Client.JoinSession(d[1].Ctx, "s", copilot.SessionOptions{
		Tools: []copilot.Tool{works}, OnPermission: copilot.ApproveAll,
	})
	if err != nil {
		t.Fatal(err)
	}
	readers := []<-chan string{collect(d[0], "s"), collect(d[1], "s")}
	ctx, stop := context.WithCancel(d[0].Ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer stop()
	for i := range d {
		calls.Go(func() {
			for ctx.Err() == nil {
				_, err := d[i].Client.Sessions().GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: "s"})
				if err != nil && ctx.Err() == nil {
					t.Errorf("a call through replica %d during the moves: %v", i, err)
					return
				}
			}
		})
	}
	for i, node := range []string{"n2", "n1"} {
		moved, err := d[0].Client.Runtimes().MoveSession(d[0].Ctx,
			&bridgev1.MoveSessionRequest{SessionId: "s", Node: node})
		if err != nil || moved.GetNode() != node {
			t.Fatalf("moved to %v, %v", moved, err)
		}
		prompt := fmt.Sprintf("on %s", node)
		if got := answer(d[i], "s", prompt); got != "You said: "+prompt {
			t.Errorf("the answer after the move to %s is %q", node, got)
		}
		if got := answer(d[i], "s", "work "+node); !strings.Contains(got, "by the participant") {
			t.Errorf("the tool said %q", got)
		}
		if n := strings.Count(conversation(d[0], prompt), "You said: first of s"); n != 1 {
			t.Errorf("the agent knows the first prompt %d times", n)
		}
		if got := owner(d[i], "s"); got != node {
			t.Errorf("the owner is %q, want %q", got, node)
		}
	}
	want, _ := d[0].Durable("s")
	for i, from := range readers {
		if got := take(d[0], from, len(want)); !slices.Equal(got, want) {
			t.Errorf("the stream through replica %d had\n%v\nwant\n%v", i, got, want)
		}
	}
}

// What cannot move says why, and stays usable where it is.
func TestMoveRefused(t *testing.T) {
	t.Parallel()
	d, _ := replicas(harness.NewScripted(t, waiting), 2)
	create(d[0], "s")
	config := d[0].Config() // its provider has a key
	_, err := d[0].Client.Sessions().CreateSession(d[0].Ctx,
		&bridgev1.CreateSessionRequest{SessionId: "secret", Config: config})
	if err != nil {
		t.Fatal(err)
	}
	move := func(r *bridgev1.MoveSessionRequest) error {
		_, err := d[1].Client.Runtimes().MoveSession(d[1].Ctx, r)
		return err
	}
	harness.WantReason(t, move(&bridgev1.MoveSessionRequest{SessionId: "none"}),
		bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
	harness.WantReason(t, move(&bridgev1.MoveSessionRequest{SessionId: "s", Node: "none"}),
		bridgev1.ErrorReason_ERROR_REASON_NODE_NOT_FOUND)
	harness.WantReason(t, move(&bridgev1.MoveSessionRequest{SessionId: "s", Wait: durationpb.New(-1)}),
		bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	harness.WantReason(t, move(&bridgev1.MoveSessionRequest{SessionId: "secret"}),
		bridgev1.ErrorReason_ERROR_REASON_CREDENTIALS_NEEDED)
	send(d[1], &bridgev1.SendRequest{SessionId: "s", Prompt: &bridgev1.Prompt{Text: "wait"}})
	d[1].Gate("never")
	harness.WantReason(t, move(&bridgev1.MoveSessionRequest{SessionId: "s", Wait: durationpb.New(time.Second)}),
		bridgev1.ErrorReason_ERROR_REASON_SESSION_BUSY)
	if got := owner(d[1], "s"); got != "n1" {
		t.Errorf("the session that is in use is at %q", got)
	}
	if err := move(&bridgev1.MoveSessionRequest{SessionId: "secret", WithoutCredentials: true}); err != nil {
		t.Fatal(err)
	}
	if got := owner(d[0], "secret"); got != "n2" {
		t.Errorf("the session without its credentials is at %q", got)
	}
	_, err = d[1].Client.Session("secret").SendAndWait(d[1].Ctx, "hello")
	harness.WantReason(t, err, bridgev1.ErrorReason_ERROR_REASON_CREDENTIALS_NEEDED)
	if _, err := d[0].Client.Runtimes().DrainNode(d[0].Ctx, &bridgev1.DrainNodeRequest{Node: "none"}); err == nil {
		t.Error("a replica that does not exist drains")
	}
}

// With the same keys at all replicas, a session takes the credentials of its caller along, when it moves and when its
// owner is killed; they are not readable in NATS.
func TestCredentialsMove(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	keys := writeKeys(st)
	d, nats := replicas(st, 2, func(int) []string { return []string{"--sealing-keys", keys} })
	config := d[0].Config()
	config.Provider.ApiKey = proto.String(harness.Planted)
	_, err := d[0].Client.Sessions().CreateSession(d[0].Ctx,
		&bridgev1.CreateSessionRequest{SessionId: "s", Config: config})
	if err != nil {
		t.Fatal(err)
	}
	answer(d[0], "s", "first of s")
	_, err = d[0].Client.Runtimes().MoveSession(d[0].Ctx, &bridgev1.MoveSessionRequest{SessionId: "s", Node: "n2"})
	if err != nil {
		t.Fatal(err)
	}
	if got := answer(d[0], "s", "after the move"); got != "You said: after the move" {
		t.Errorf("the answer is %q", got)
	}
	d[1].Stop(syscall.SIGKILL)
	has(d[0], "s")
	if got := answer(d[0], "s", "after the kill"); got != "You said: after the kill" {
		t.Errorf("the answer is %q", got)
	}
	for _, r := range d[0].Model.ModelRequests() {
		if got := r.Header.Get("Authorization"); got != "Bearer "+harness.Planted {
			t.Errorf("a model request has the key %q", got)
		}
	}
	if found := harness.SecretsIn(t, nats.Dir(), harness.Planted); len(found) > 0 {
		t.Errorf("the key is readable in %v", found)
	}
}

// writeKeys writes a file with a key for credentials.
func writeKeys(st *harness.Scripted) string {
	st.T.Helper()
	file := filepath.Join(st.T.TempDir(), "keys")
	key := base64.StdEncoding.EncodeToString([]byte("a key for tests with 32 bytes..."))
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		st.T.Fatal(err)
	}
	return file
}

// A replica that drains keeps no session: those at rest move at once, one in a turn after it, and new ones are created
// elsewhere, also by calls that enter there. It takes sessions again after the drain.
func TestDrainNode(t *testing.T) {
	t.Parallel()
	slow := harness.Rule{When: harness.WhenUser("slow"), WaitFor: "later", Reply: harness.Steps(harness.Say("done"))}
	d, _ := replicas(harness.NewScripted(t, slow), 2)
	for _, id := range []string{"s1", "s2", "s3"} {
		create(d[0], id)
	}
	before := durable(d[0], "s1")
	send(d[0], &bridgev1.SendRequest{SessionId: "s3", Prompt: &bridgev1.Prompt{Text: "slow"}})
	d[0].Gate("later")
	drain := func(r *bridgev1.DrainNodeRequest) *bridgev1.DrainNodeResponse {
		t.Helper()
		r.Node = "n1"
		out, err := d[1].Client.Runtimes().DrainNode(d[1].Ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	out := drain(&bridgev1.DrainNodeRequest{Wait: durationpb.New(3 * time.Second)})
	if out.GetMovedSessions() != 2 || out.GetRemainingSessions() != 1 {
		t.Errorf("with a turn under way: %v", out)
	}
	d[0].Model.Release("later")
	if out := drain(&bridgev1.DrainNodeRequest{}); out.GetMovedSessions() != 1 || out.GetRemainingSessions() != 0 {
		t.Errorf("after the turn: %v", out)
	}
	create(d[0], "s4")
	d[0].Eventually("the replica that drains has no session", func() bool {
		now := sessionsOf(d[0])
		return now["n1"] == "0 draining" && now["n2"] == "4"
	})
	if got := durable(d[0], "s1"); len(got) < len(before) || !slices.Equal(got[:len(before)], before) {
		t.Errorf("the events of the session that moved begin with\n%v\nwere\n%v", got, before)
	}
	if got := answer(d[0], "s3", "and on"); got != "You said: and on" {
		t.Errorf("the answer of the session that was in a turn is %q", got)
	}
	drain(&bridgev1.DrainNodeRequest{Undo: true})
	create(d[0], "s5")
	if got := owner(d[1], "s5"); got != "n1" {
		t.Errorf("after the drain a new session is at %q", got)
	}
	_, err := d[0].Client.Runtimes().DrainNode(d[0].Ctx, &bridgev1.DrainNodeRequest{Node: "none"})
	harness.WantReason(t, err, bridgev1.ErrorReason_ERROR_REASON_NODE_NOT_FOUND)
	d[1].Stop(syscall.SIGKILL)
	d[0].Eventually("the other replica is gone", func() bool { return len(sessionsOf(d[0])) == 1 })
	_, err = d[0].Client.Runtimes().DrainNode(d[0].Ctx, &bridgev1.DrainNodeRequest{Node: "n1"})
	harness.WantReason(t, err, bridgev1.ErrorReason_ERROR_REASON_NODES_DRAINING)
}

// A replica that is stopped hands its sessions over before it ends: its events go on without a lost ephemeral one.
func TestStopHandsOver(t *testing.T) {
	t.Parallel()
	d, _ := replicas(harness.NewScripted(t), 2)
	create(d[0], "s")
	events := collect(d[1], "s")
	want, _ := d[1].Durable("s")
	take(d[1], events, len(want))
	d[0].Stop(syscall.SIGTERM)
	if !strings.Contains(d[0].Log.String(), "a session has moved to another replica") {
		t.Error("the session was not handed over")
	}
	if got := answer(d[1], "s", "and on"); got != "You said: and on" {
		t.Errorf("the answer is %q", got)
	}
	after, _ := d[1].Durable("s")
	if got := take(d[1], events, len(after)-len(want)); !slices.Equal(got, after[len(want):]) {
		t.Errorf("the stream went on with\n%v\nwant\n%v", got, after[len(want):])
	}
}

// A replica that joins gets unwatched sessions of others.
func TestJoinBalances(t *testing.T) {
	t.Parallel()
	d, _ := replicas(harness.NewScripted(t), 2)
	d[1].Stop(syscall.SIGTERM)
	for i := range 8 {
		create(d[0], fmt.Sprintf("s%d", i))
	}
	events := collect(d[0], "s0")
	take(d[0], events, 1)
	d[1].Start()
	d[0].Eventually("both replicas have sessions", func() bool {
		now := sessionsOf(d[0])
		return now["n1"] == "4" && now["n2"] == "4" || now["n1"] == "5" && now["n2"] == "3"
	})
	if got := owner(d[1], "s0"); got != "n1" {
		t.Errorf("the session that is watched is at %q", got)
	}
	for i := range 8 {
		if got := answer(d[i%2], fmt.Sprintf("s%d", i), "on"); got != "You said: on" {
			t.Errorf("the answer is %q", got)
		}
	}
}
