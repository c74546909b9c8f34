package e2e

import (
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

const notFound = bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND

func TestSessionCreateAndDisconnect(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	s := r.session(r.options())
	if s.ID() == "" || s.Info().GetState() != bridgev1.SessionState_SESSION_STATE_LOADED {
		t.Errorf("a new session is %v", s.Info())
	}
	s.ask("hello")

	if err := s.Disconnect(r.ctx); err != nil {
		t.Fatalf("disconnect: %v", err)
	}
	handle := r.client.Session(s.ID())
	for range 2 {
		if err := handle.Disconnect(r.ctx); err != nil {
			t.Fatalf("disconnect once more: %v", err)
		}
	}
	for ev, err := range handle.History(r.ctx) {
		if e := wantError(t, err, codes.NotFound, notFound); !strings.Contains(e.Message, "Session not found") {
			t.Errorf("history of a disconnected session says %q, want the CLI's words", e.Message)
		}
		if ev != nil {
			t.Errorf("history of a disconnected session has %v", ev)
		}
	}
	_, err := handle.Send(r.ctx, "hello?")
	wantError(t, err, codes.NotFound, notFound)
	_, err = handle.Get(r.ctx)
	wantError(t, err, codes.NotFound, notFound)
	// The CLI let go of it, and kept the history.
	recorded := s.recordedTypes()
	if len(recorded) == 0 || recorded[len(recorded)-1] != "session.shutdown" {
		t.Errorf("the CLI recorded %q, want session.shutdown at the end", recorded)
	}
}

func TestSessionDisconnectUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	err := r.client.Session("no-such-session").Disconnect(r.ctx)
	wantError(t, err, codes.NotFound, notFound)
}

func TestSessionsConcurrent(t *testing.T) {
	t.Parallel()
	const many = 20
	r := newRig(t, echo)
	sessions := make([]*testSession, many)
	answers := make([]string, many)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			s, err := r.client.CreateSession(r.ctx, r.options())
			if err != nil {
				t.Errorf("create: %v", err)
				return
			}
			sessions[i] = r.adopt(s)
			out, err := s.SendAndWait(r.ctx, "I am "+s.ID())
			if err != nil {
				t.Errorf("turn: %v", err)
				return
			}
			answers[i] = out.GetText()
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	ids := map[string]bool{}
	for i, s := range sessions {
		ids[s.ID()] = true
		if want := "You said: I am " + s.ID(); answers[i] != want {
			t.Errorf("answer is %q, want %q", answers[i], want)
		}
	}
	if len(ids) != many {
		t.Errorf("%d sessions have %d ids", many, len(ids))
	}
}

func TestSessionIDOfChoice(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	opts := r.options()
	opts.ID = "chosen_ID-" + strings.ToLower(t.Name())
	s := r.session(opts)
	if s.ID() != opts.ID {
		t.Errorf("id is %q, want %q", s.ID(), opts.ID)
	}
	s.ask("hello")
	_, err := r.client.CreateSession(r.ctx, opts)
	wantError(t, err, codes.AlreadyExists, bridgev1.ErrorReason_ERROR_REASON_SESSION_EXISTS)
	// Also when it is only in the CLI's history.
	if err := s.Disconnect(r.ctx); err != nil {
		t.Fatal(err)
	}
	_, err = r.client.CreateSession(r.ctx, opts)
	wantError(t, err, codes.AlreadyExists, bridgev1.ErrorReason_ERROR_REASON_SESSION_EXISTS)
}

// remembering is a script in which the model only knows what it was told before.
const remembering = `
rules:
  - when: {user: "secret?", body: "The secret is heron"}
    reply: [{text: "heron"}]
  - when: {user: "secret?"}
    reply: [{text: "I was never told."}]
default: {reply: [{text: "Noted."}]}`

func TestSessionResumeSameClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, remembering)
	s := r.session(r.options())
	s.ask("The secret is heron.")
	if err := s.Close(); err != nil {
		t.Fatalf("leave: %v", err)
	}
	again := r.resume(r.client, s.ID(), copilot.SessionOptions{})
	if again.ID() != s.ID() {
		t.Errorf("resumed %q as %q", s.ID(), again.ID())
	}
	if got := again.ask("What is the secret?"); got != "heron" {
		t.Errorf("after a resume the agent says %q", got)
	}
	resumed := again.waitFor("session.resume").GetEvent().GetSessionResume()
	if resumed.GetSessionWasActive() || resumed.GetContinuePendingWork() {
		t.Errorf("session.resume says %v, want an idle session without pending work", resumed)
	}
	if n := count(types(again.history()), "session.resume"); n != 1 {
		t.Errorf("one resume left %d session.resume events", n)
	}
}

func TestSessionResumeNewClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, remembering)
	first := r.dial()
	s := r.sessionOf(first, r.options(func(c *cliv1.SessionConfig) {
		c.SystemMessage = &cliv1.SystemMessageConfig{
			Mode:    cliv1.SystemMessageMode_SYSTEM_MESSAGE_MODE_REPLACE,
			Content: proto.String("You keep secrets."),
		}
	}))
	s.ask("The secret is heron.")
	if err := s.Disconnect(r.ctx); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	again := r.resume(r.dial(), s.ID(), copilot.SessionOptions{})
	wantOrder(t, types(again.history()), "session.start", "user.message", "assistant.message", "session.resume")
	if got := again.ask("What is the secret?"); got != "heron" {
		t.Errorf("after a resume the agent says %q", got)
	}
	// The CLI keeps no configuration of an unloaded session: the bridge gave it again.
	if got := r.lastModelRequest().System; got != "You keep secrets." {
		t.Errorf("after a resume the system prompt is %q", got)
	}
	if n := count(again.recordedTypes(), "session.resume"); n != 1 {
		t.Errorf("the CLI recorded %d session.resume, want 1", n)
	}
	resumed := again.waitFor("session.resume").GetEvent().GetSessionResume()
	if resumed.GetSessionWasActive() {
		t.Error("session.resume says that the session was active, but it had been disconnected")
	}
}

func TestSessionResumeUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	_, err := r.client.ResumeSession(r.ctx, "00000000-0000-4000-8000-000000000000", r.options())
	wantError(t, err, codes.NotFound, notFound)
	_, err = r.client.JoinSession(r.ctx, "00000000-0000-4000-8000-000000000000", copilot.SessionOptions{})
	wantError(t, err, codes.NotFound, notFound)
}

func TestSessionDelete(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	s := r.session(r.options())
	s.ask("hello")
	if err := s.Delete(r.ctx); err != nil {
		t.Fatalf("delete: %v", err)
	}
	_, err := r.client.Session(s.ID()).Get(r.ctx)
	wantError(t, err, codes.NotFound, notFound)
	_, err = r.client.ResumeSession(r.ctx, s.ID(), r.options())
	wantError(t, err, codes.NotFound, notFound)
	wantError(t, r.client.DeleteSession(r.ctx, s.ID()), codes.NotFound, notFound)
	for one, err := range r.client.ListSessions(r.ctx, &bridgev1.SessionFilter{WorkingDirectory: r.dir}) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("a deleted session is listed: %v", one)
	}
	if recorded := s.record(); recorded != nil {
		t.Errorf("the CLI still has a record of %d events", len(recorded))
	}
}

func TestSessionDeleteDisconnected(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	s := r.session(r.options())
	s.ask("hello")
	if err := s.Disconnect(r.ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.client.DeleteSession(r.ctx, s.ID()); err != nil {
		t.Fatalf("delete: %v", err)
	}
	_, err := r.client.ResumeSession(r.ctx, s.ID(), r.options())
	wantError(t, err, codes.NotFound, notFound)
	if recorded := s.record(); recorded != nil {
		t.Errorf("the CLI still has a record of %d events", len(recorded))
	}
}

func TestSessionIdempotentCreate(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	req := &bridgev1.CreateSessionRequest{RequestId: rand.Text(), Config: r.options().Config}
	var ids []string
	for range 2 {
		resp, err := r.client.Sessions().CreateSession(r.ctx, req)
		if err != nil {
			t.Fatalf("create: %v", err)
		}
		ids = append(ids, resp.GetSession().GetSessionId())
		r.own(ids[0])
	}
	if ids[0] != ids[1] {
		t.Errorf("one request id made sessions %q", ids)
	}
	n := 0
	for _, err := range r.client.ListSessions(r.ctx, &bridgev1.SessionFilter{WorkingDirectory: r.dir}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("one request id made %d sessions", n)
	}
	other := proto.CloneOf(req)
	other.Lifetime = bridgev1.Lifetime_LIFETIME_KEEP
	_, err := r.client.Sessions().CreateSession(r.ctx, other)
	wantError(t, err, codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED)
}

func TestSessionLifetimeEndsWithLastParticipant(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	opts := r.options()
	opts.Lifetime = bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT
	s := r.session(opts)
	s.ask("hello")
	second, err := r.dial().JoinSession(r.ctx, s.ID(), copilot.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Get(r.ctx); err != nil {
		t.Errorf("with a participant left: %v", err)
	}
	watched := make(chan error, 1)
	go func() {
		for _, err := range r.client.Session(s.ID()).Events(r.ctx) {
			if err != nil {
				watched <- err
				return
			}
		}
		watched <- nil // the session is over
	}()
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-watched; err != nil {
		t.Errorf("the events did not end with the session: %v", err)
	}
	_, err = r.client.Session(s.ID()).Get(r.ctx)
	wantError(t, err, codes.NotFound, notFound)
}

func count(all []string, one string) int {
	n := 0
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

// sorted is a sorted copy.
func sorted(all []string) []string {
	return slices.Sorted(slices.Values(all))
}
