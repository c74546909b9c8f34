package cluster

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
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

// waiting is a rule for a prompt whose answer comes never.
var waiting = harness.Rule{When: harness.WhenUser("wait"), WaitFor: "never", Reply: harness.Steps(harness.Say("late"))}

// A stream through a replica goes on after the end of the owner in the middle of a turn: each durable event comes once,
// in order, and the lost ephemeral ones are reported.
func TestStreamOutlivesTheOwner(t *testing.T) {
	t.Parallel()
	d, _ := replicas(harness.NewScripted(t, waiting), 2)
	create(d[0], "s")
	ctx, cancel := context.WithCancel(d[1].Ctx)
	defer cancel()
	all := copilot.WithFilter(&bridgev1.EventFilter{IncludeLarge: true})
	gaps := make(chan *copilot.GapError, 100)
	got, failed := make(chan string, 1000), make(chan error, 1)
	go func() {
		defer close(got)
		for e, err := range d[1].Client.Session("s").Events(ctx, copilot.FromBeginning(), all,
			copilot.OnGap(func(g *copilot.GapError) { gaps <- g })) {
			switch {
			case err != nil && ctx.Err() == nil:
				failed <- err
				return
			case err == nil && !e.GetEvent().GetEphemeral():
				got <- e.GetEvent().GetId()
			}
		}
	}()
	send(d[1], &bridgev1.SendRequest{SessionId: "s", Prompt: &bridgev1.Prompt{Text: "wait"}})
	d[1].Gate("never")
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
	if g := harness.Await(d[1].Scripted, gaps, "a gap"); g.Reason != copilot.GapEphemeralLost {
		t.Errorf("the gap is %v", g)
	}
}

// send sends a prompt, and returns the id of its message.
func send(d *harness.Daemon, request *bridgev1.SendRequest) string {
	d.T.Helper()
	sent, err := d.Client.Sessions().Send(d.Ctx, request)
	if err != nil {
		d.T.Fatal(err)
	}
	return sent.GetMessageId()
}

// A replica that was frozen for longer than its lease finds that others have its sessions: it changes nothing, and ends
// with an error.
func TestFrozenOwnerEnds(t *testing.T) {
	t.Parallel()
	d, _ := replicas(harness.NewScripted(t), 2)
	create(d[0], "s")
	frozen := d[0].Cmd.Process
	t.Cleanup(func() { _ = frozen.Signal(syscall.SIGCONT) }) // or its end would be awaited in vain
	freeze(t, frozen)
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

// A prompt that is sent again after the end of the owner has the first answer, and the agent gets it once: after its
// turn and in the middle of it.
func TestRequestOutlivesTheOwner(t *testing.T) {
	t.Parallel()
	d, _ := replicas(harness.NewScripted(t, waiting), 2)
	create(d[0], "s")
	ended := &bridgev1.SendRequest{SessionId: "s", RequestId: "1", Prompt: &bridgev1.Prompt{Text: "only once"}}
	running := &bridgev1.SendRequest{SessionId: "s", RequestId: "2", Prompt: &bridgev1.Prompt{Text: "wait for it"}}
	first := send(d[1], ended)
	answer(d[1], "s", "and on")
	second := send(d[1], running)
	d[1].Gate("never")
	d[0].Stop(syscall.SIGKILL)
	has(d[1], "s")
	if again := send(d[1], ended); again != first {
		t.Errorf("the repeated request got %q, the first %q", again, first)
	}
	if again := send(d[1], running); again != second {
		t.Errorf("the repeated request of a turn that was running got %q, the first %q", again, second)
	}
	answer(d[1], "s", "the end")
	sent := conversation(d[1], "the end")
	if n, m := strings.Count(sent, "You said: only once"), strings.Count(sent, "wait for it"); n != 1 || m != 1 {
		t.Errorf("the agent answered the first prompt %d times, and was sent the second %d times", n, m)
	}
}

// An agent whose owner is killed in the middle of a turn continues once, at the next owner.
func TestTurnContinuesAtTheNextOwner(t *testing.T) {
	t.Parallel()
	const told = "The process that ran you ended"
	d, _ := replicas(harness.NewScripted(t, waiting, harness.OnUser(told, harness.Say("done after all"))), 2)
	create(d[0], "s")
	_, err := d[1].Client.Sessions().ResumeSession(d[1].Ctx, &bridgev1.ResumeSessionRequest{
		SessionId: "s", OnInterruption: bridgev1.OnInterruption_ON_INTERRUPTION_CONTINUE,
	})
	if err != nil {
		t.Fatal(err)
	}
	send(d[1], &bridgev1.SendRequest{SessionId: "s", Prompt: &bridgev1.Prompt{Text: "wait for it"}})
	d[1].Gate("never")
	d[0].Stop(syscall.SIGKILL)
	// No caller comes back for that.
	d[1].Eventually("the continuation", func() bool {
		return strings.Contains(conversation(d[1], told), "wait for it")
	})
	has(d[1], "s")
	answer(d[1], "s", "the end")
	sent := conversation(d[1], "the end")
	if n, m := strings.Count(sent, told), strings.Count(sent, "done after all"); n != 1 || m != 1 {
		t.Errorf("the agent was told %d times, and answered %d times", n, m)
	}
}

// A repeated call that creates a session without naming it finds the first one's: through another replica, and after
// the end of the owner.
func TestCreationComesAgain(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	d, _ := replicas(st, 2)
	config := d[0].Config()
	config.Provider = nil
	request := &bridgev1.CreateSessionRequest{RequestId: "made once", Config: config, ProviderRef: "ours"}
	made := func(d *harness.Daemon) string {
		t.Helper()
		out, err := d.Client.Sessions().CreateSession(d.Ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		return out.GetSession().GetSessionId()
	}
	run := func(d *harness.Daemon) string {
		t.Helper()
		stream, err := d.Client.Sessions().Run(d.Ctx, &bridgev1.RunRequest{
			RequestId: "run once", Prompt: &bridgev1.Prompt{Text: "only once"},
			Session: &bridgev1.RunRequest_Create{Create: &bridgev1.CreateSessionRequest{
				Config: config, ProviderRef: "ours", Lifetime: bridgev1.Lifetime_LIFETIME_KEEP,
			}},
		})
		for err == nil {
			var m *bridgev1.RunResponse
			if m, err = stream.Recv(); m.GetOutcome() != nil {
				return m.GetOutcome().GetText()
			}
		}
		t.Fatal(err)
		return ""
	}
	id, text := made(d[0]), run(d[0])
	if again := made(d[1]); again != id {
		t.Errorf("through the other replica the session is %q, was %q", again, id)
	}
	if again := run(d[1]); again != text || text != "You said: only once" {
		t.Errorf("through the other replica the turn said %q, and first %q", again, text)
	}
	answer(d[0], id, "hello")
	d[0].Stop(syscall.SIGKILL)
	has(d[1], id)
	if again := made(d[1]); again != id {
		t.Errorf("after the end of its owner the session is %q, was %q", again, id)
	}
	// CLI 1.0.81 does not name the message in its history.
	if again := run(d[1]); again != text && !st.Before("1.0.82") {
		t.Errorf("after the end of its owner the turn said %q", again)
	}
	list, err := d[1].Client.Sessions().ListSessions(d[1].Ctx, &bridgev1.ListSessionsRequest{})
	if err != nil || len(list.GetSessions()) != 2 {
		t.Errorf("there are %d sessions, %v", len(list.GetSessions()), err)
	}
	sent := 0
	for _, r := range d[1].Model.ModelRequests() {
		if strings.Contains(string(r.Body), "only once") {
			sent++
		}
	}
	if sent != 1 {
		t.Errorf("the model was asked %d times", sent)
	}
}

// The sessions of an owner that was killed have one owner each, the same for all who ask.
func TestSessionsHaveOneOwner(t *testing.T) {
	t.Parallel()
	d, _ := replicas(harness.NewScripted(t), 3)
	ids := []string{"s1", "s2", "s3"}
	for _, id := range ids {
		create(d[0], id)
	}
	d[0].Stop(syscall.SIGKILL)
	for _, id := range ids {
		has(d[1], id)
		owners := map[string]bool{}
		for _, survivor := range d[1:] {
			has(survivor, id)
			var header metadata.MD
			_, err := survivor.Client.Sessions().GetSession(survivor.Ctx,
				&bridgev1.GetSessionRequest{SessionId: id}, grpc.Header(&header))
			if err != nil {
				t.Fatal(err)
			}
			owners[strings.Join(header.Get("copilot-owner-node"), " ")] = true
			answer(survivor, id, "on")
		}
		if len(owners) != 1 || !owners["n2"] && !owners["n3"] {
			t.Errorf("the session %s has the owners %v", id, owners)
		}
	}
}

// runsNotAhead checks a session whose events cannot be stored: it says so, shows what is stored, and takes no prompt.
func runsNotAhead(d *harness.Daemon, id string) {
	d.T.Helper()
	before := durable(d, id)
	ctx, cancel := context.WithTimeout(d.Ctx, 5*time.Second) // less than the lease
	defer cancel()
	_, _ = d.Client.Sessions().WriteLog(ctx, &bridgev1.WriteLogRequest{SessionId: id, Message: "unstored"})
	got, err := d.Client.Sessions().GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: id})
	for ; err == nil && got.GetSession().GetStorageProblem() == ""; time.Sleep(20 * time.Millisecond) {
		got, err = d.Client.Sessions().GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: id})
	}
	if err != nil {
		d.T.Errorf("the session does not report the storage: %v", err)
	}
	prompt := &bridgev1.Prompt{Text: "ahead"}
	_, err = d.Client.Sessions().Send(ctx, &bridgev1.SendRequest{SessionId: id, Prompt: prompt})
	harness.WantReason(d.T, err, bridgev1.ErrorReason_ERROR_REASON_SESSION_UNAVAILABLE)
	if after := durable(d, id); !slices.Equal(after, before) {
		d.T.Errorf("events are shown that are not stored:\n%v\nwant\n%v", after, before)
	}
}

// The service outlives the NATS server: for less than a lease nothing is lost; for longer the replicas end, and have
// their sessions when they and NATS are back.
func TestNATSAway(t *testing.T) {
	t.Parallel()
	d, nats := replicas(harness.NewScripted(t), 2)
	create(d[0], "s")
	first := durable(d[1], "s")
	nats.Stop()
	runsNotAhead(d[0], "s")
	nats.Start()
	d[1].Eventually("calls succeed again", func() bool {
		out, err := d[1].Client.Session("s").SendAndWait(d[1].Ctx, "second", copilot.WithRequestID("second"))
		return err == nil && out.Err() == nil
	})
	before := durable(d[1], "s")
	if len(before) <= len(first) || !slices.Equal(before[:len(first)], first) {
		t.Errorf("events before:\n%v\nafter a moment without NATS:\n%v", first, before)
	}
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
	if n := strings.Count(conversation(d[1], "third"), "You said: second"); n != 1 {
		t.Errorf("the agent answered the second prompt %d times", n)
	}
	if after := durable(d[0], "s"); len(after) <= len(before) || !slices.Equal(after[:len(before)], before) {
		t.Errorf("events before:\n%v\nafter:\n%v", before, after)
	}
}
