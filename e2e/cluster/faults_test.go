package cluster

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// has waits until a replica answers for a session.
func has(d *harness.Daemon, id string) {
	d.T.Helper()
	d.Eventually("the session "+id+" is at the other replica", func() bool {
		ctx, cancel := context.WithTimeout(d.Ctx, 2*time.Second)
		defer cancel()
		_, err := d.Client.Sessions().GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: id})
		return err == nil
	})
}

// ended waits until a replica has ended by itself, and returns its error.
func ended(d *harness.Daemon) error {
	d.T.Helper()
	err := harness.Await(d.Scripted, d.Exited, "the end of a replica")
	d.Exited <- err
	d.Stop(syscall.SIGKILL) // what is left is the test's client
	return err
}

// A tool call that waits when the owner is killed waits at the next owner, under its id, and the agent gets the answer.
func TestPendingOutlivesTheOwner(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("work", harness.Call("works", nil)),
		harness.OnResult("works", harness.Say("{{tool_result}}")))
	if st.Before("1.0.82") {
		t.Skip("CLI 1.0.81 takes an answer after a restart, and says nothing more")
	}
	d, _ := replicas(st, 2)
	config := d[0].Config()
	config.Provider = nil
	config.Tools = []*cliv1.ToolDefinition{
		{Name: "works", Description: "A test's tool.", SkipPermission: proto.Bool(true)},
	}
	_, err := d[0].Client.Sessions().CreateSession(d[0].Ctx,
		&bridgev1.CreateSessionRequest{SessionId: "s", Config: config, ProviderRef: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d[1].Client.Sessions().Send(d[1].Ctx,
		&bridgev1.SendRequest{SessionId: "s", Prompt: &bridgev1.Prompt{Text: "work"}})
	if err != nil {
		t.Fatal(err)
	}
	call := d[1].Waiting("s")
	d[0].Stop(syscall.SIGKILL)
	has(d[1], "s")
	if again := d[1].Waiting("s"); again.GetCallbackId() != call.GetCallbackId() {
		t.Errorf("the tool's call has the id %q, had %q", again.GetCallbackId(), call.GetCallbackId())
	}
	result, _ := copilot.AnswerTool("by the next owner")
	_, err = d[1].Client.Callbacks().Resolve(d[1].Ctx,
		&bridgev1.ResolveRequest{SessionId: "s", CallbackId: call.GetCallbackId(), Answer: result})
	if err != nil {
		t.Fatal(err)
	}
	d[1].After("s", nil, "session.idle")
	for _, got := range d[1].ToolResults() {
		if got != "by the next owner" {
			t.Errorf("the agent got %q", got)
		}
	}
	answer(d[1], "s", "and on")
	if !strings.Contains(conversation(d[1], "and on"), "by the next owner") {
		t.Error("the agent did not get the answer")
	}
}

// A stream through a replica goes on after the end of the owner: each durable event comes once, in order.
func TestStreamOutlivesTheOwner(t *testing.T) {
	t.Parallel()
	d, _ := replicas(harness.NewScripted(t), 2)
	create(d[0], "s")
	ctx, cancel := context.WithCancel(d[1].Ctx)
	defer cancel()
	durables := copilot.WithFilter(&bridgev1.EventFilter{ExcludeEphemeral: true, IncludeLarge: true})
	got, failed := make(chan string, 1000), make(chan error, 1)
	go func() {
		defer close(got)
		for e, err := range d[1].Client.Session("s").Events(ctx, copilot.FromBeginning(), durables) {
			switch {
			case err != nil && ctx.Err() == nil:
				failed <- err
				return
			case err == nil:
				got <- e.GetEvent().GetId()
			}
		}
	}()
	answer(d[1], "s", "second")
	d[0].Stop(syscall.SIGKILL)
	has(d[1], "s")
	answer(d[1], "s", "third")
	want, _ := d[1].Durable("s")
	var ids []string
	for len(ids) < len(want) {
		select {
		case err := <-failed:
			t.Fatalf("the stream ended after %d of %d events: %v", len(ids), len(want), err)
		case id := <-got:
			ids = append(ids, id)
		case <-d[1].Ctx.Done():
			t.Fatalf("%d of %d events came: %v of %v", len(ids), len(want), ids, want)
		}
	}
	if !slices.Equal(ids, want) {
		t.Errorf("the stream had\n%v\nwant\n%v", ids, want)
	}
}

// A replica that was frozen for longer than its lease finds that others have its sessions: it changes nothing, and ends
// with an error.
func TestFrozenOwnerEnds(t *testing.T) {
	t.Parallel()
	d, _ := replicas(harness.NewScripted(t), 2)
	create(d[0], "s")
	frozen := d[0].Cmd.Process
	if err := frozen.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	has(d[1], "s")
	answer(d[1], "s", "second")
	after := durable(d[1], "s")
	if err := frozen.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	err := ended(d[0])
	if log := d[0].Log.String(); err == nil || !strings.Contains(log, "this replica has lost its sessions to others") {
		t.Errorf("the replica ended with %v", err)
	}
	if got := durable(d[1], "s"); !slices.Equal(got, after) {
		t.Errorf("the former owner has changed the events\n%v\ninto\n%v", after, got)
	}
	d[0].Start()
	if got := answer(d[0], "s", "third"); got != "You said: third" {
		t.Errorf("the answer through the replica that is back is %q", got)
	}
}

// A prompt that is sent again after the end of the owner has the first answer, and the agent gets it once.
func TestRequestOutlivesTheOwner(t *testing.T) {
	t.Parallel()
	d, _ := replicas(harness.NewScripted(t), 2)
	create(d[0], "s")
	request := &bridgev1.SendRequest{
		SessionId: "s", RequestId: "once", Prompt: &bridgev1.Prompt{Text: "only once"},
	}
	first, err := d[1].Client.Sessions().Send(d[1].Ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	answer(d[1], "s", "and on")
	d[0].Stop(syscall.SIGKILL)
	has(d[1], "s")
	again, err := d[1].Client.Sessions().Send(d[1].Ctx, request)
	if err != nil || again.GetMessageId() != first.GetMessageId() {
		t.Errorf("the repeated request got %v, %v, the first %v", again, err, first)
	}
	answer(d[1], "s", "the end")
	if n := strings.Count(conversation(d[1], "the end"), "You said: only once"); n != 1 {
		t.Errorf("the agent answered the prompt %d times", n)
	}
}

// The service outlives the NATS server: for less than a lease nothing is lost; for longer the replicas end, and have
// their sessions when they and NATS are back.
func TestNATSAway(t *testing.T) {
	t.Parallel()
	d, nats := replicas(harness.NewScripted(t), 2)
	create(d[0], "s")
	nats.Stop()
	nats.Start()
	d[1].Eventually("calls succeed again", func() bool {
		out, err := d[1].Client.Session("s").SendAndWait(d[1].Ctx, "second")
		return err == nil && out.Err() == nil
	})
	before := durable(d[1], "s")
	nats.Stop()
	for i := range d {
		err := ended(d[i])
		if err == nil || !strings.Contains(d[i].Log.String(), "its lease was not renewed in time") {
			t.Errorf("replica %d ended with %v", i, err)
		}
	}
	nats.Start()
	for i := range d {
		d[i].Start()
	}
	if got := answer(d[1], "s", "third"); got != "You said: third" {
		t.Errorf("the answer is %q", got)
	}
	if after := durable(d[0], "s"); len(after) <= len(before) || !slices.Equal(after[:len(before)], before) {
		t.Errorf("events before:\n%v\nafter:\n%v", before, after)
	}
}
