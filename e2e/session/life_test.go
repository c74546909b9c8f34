package session

import (
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

const notFound = bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND

func TestSessionCreateAndDisconnect(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	if s.ID() == "" || s.Info().State != copilot.StateLoaded {
		t.Errorf("a new session is %v", s.Info())
	}
	s.Ask("hello")

	if err := s.Disconnect(r.Ctx); err != nil {
		t.Fatalf("disconnect: %v", err)
	}
	handle := r.Client.Session(s.ID())
	for range 2 {
		if err := handle.Disconnect(r.Ctx); err != nil {
			t.Fatalf("disconnect once more: %v", err)
		}
	}
	for ev, err := range handle.History(r.Ctx) {
		if e := harness.WantError(t, err, codes.NotFound, notFound); !strings.Contains(e.Message, "Session not found") {
			t.Errorf("history of a disconnected session says %q, want the CLI's words", e.Message)
		}
		if ev != nil {
			t.Errorf("history of a disconnected session has %v", ev)
		}
	}
	_, err := handle.Send(r.Ctx, "hello?")
	if e := harness.WantError(t, err, codes.NotFound, notFound); !strings.Contains(e.Message, "ResumeSession") {
		t.Errorf("a prompt for a disconnected session says %q, not what opens it", e.Message)
	}
	_, err = handle.Get(r.Ctx)
	harness.WantError(t, err, codes.NotFound, notFound)
	// The CLI let go of it, and kept the history.
	recorded := s.RecordedTypes()
	if len(recorded) == 0 || recorded[len(recorded)-1] != "session.shutdown" {
		t.Errorf("the CLI recorded %q, want session.shutdown at the end", recorded)
	}
}

func TestSessionDisconnectUnknown(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	err := r.Client.Session("no-such-session").Disconnect(r.Ctx)
	harness.WantError(t, err, codes.NotFound, notFound)
}

func TestSessionsConcurrent(t *testing.T) {
	t.Parallel()
	const many = 20
	r := harness.NewFixture(t, harness.Echo)
	sessions := make([]*harness.TestSession, many)
	answers := make([]string, many)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			s, err := r.Client.CreateSession(r.Ctx, r.Options())
			if err != nil {
				t.Errorf("create: %v", err)
				return
			}
			sessions[i] = r.Adopt(s)
			out, err := s.SendAndWait(r.Ctx, "I am "+s.ID())
			if err != nil {
				t.Errorf("turn: %v", err)
				return
			}
			answers[i] = out.Text()
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
	r := harness.NewFixture(t, harness.Echo)
	opts := r.Options()
	opts.ID = "chosen_ID-" + strings.ToLower(t.Name())
	s := r.Session(opts)
	if s.ID() != opts.ID {
		t.Errorf("id is %q, want %q", s.ID(), opts.ID)
	}
	s.Ask("hello")
	_, err := r.Client.CreateSession(r.Ctx, opts)
	harness.WantError(t, err, codes.AlreadyExists, bridgev1.ErrorReason_ERROR_REASON_SESSION_EXISTS)
	// Also when it is only in the CLI's history.
	if err := s.Disconnect(r.Ctx); err != nil {
		t.Fatal(err)
	}
	_, err = r.Client.CreateSession(r.Ctx, opts)
	harness.WantError(t, err, codes.AlreadyExists, bridgev1.ErrorReason_ERROR_REASON_SESSION_EXISTS)
}

// remembering is a script in which the model only knows its earlier messages.
const remembering = `
rules:
  - when: {user: "secret?", body: "The secret is heron"}
    reply: [{text: "heron"}]
  - when: {user: "secret?"}
    reply: [{text: "I was never told."}]
default: {reply: [{text: "Noted."}]}`

func TestSessionResumeSameClient(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, remembering)
	s := r.Session(r.Options())
	s.Ask("The secret is heron.")
	if err := s.Close(); err != nil {
		t.Fatalf("leave: %v", err)
	}
	again := r.Resume(r.Client, s.ID(), copilot.SessionOptions{})
	if again.ID() != s.ID() {
		t.Errorf("resumed %q as %q", s.ID(), again.ID())
	}
	if got := again.Ask("What is the secret?"); got != "heron" {
		t.Errorf("after a resume the agent says %q", got)
	}
	resumed := again.WaitFor("session.resume").GetEvent().GetSessionResume()
	if resumed.GetSessionWasActive() || resumed.GetContinuePendingWork() {
		t.Errorf("session.resume says %v, want an idle session without pending work", resumed)
	}
	if n := count(harness.Types(again.Recorded()), "session.resume"); n != 1 {
		t.Errorf("one resume left %d session.resume events", n)
	}
}

func TestSessionResumeNewClient(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, remembering)
	first := r.Dial()
	s := r.SessionOf(first, r.Options(func(c *cliv1.SessionConfig) {
		c.SystemMessage = &cliv1.SystemMessageConfig{
			Mode:    cliv1.SystemMessageMode_SYSTEM_MESSAGE_MODE_REPLACE,
			Content: proto.String("You keep secrets."),
		}
	}))
	s.Ask("The secret is heron.")
	if err := s.Disconnect(r.Ctx); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	again := r.Resume(r.Dial(), s.ID(), copilot.SessionOptions{})
	harness.WantOrder(t, harness.Types(again.Recorded()), "session.start", "user.message", "assistant.message",
		"session.resume")
	if got := again.Ask("What is the secret?"); got != "heron" {
		t.Errorf("after a resume the agent says %q", got)
	}
	// The CLI keeps no configuration of an unloaded session: the bridge gave it again.
	if got := r.LastModelRequest().System; got != "You keep secrets." {
		t.Errorf("after a resume the system prompt is %q", got)
	}
	if n := count(again.RecordedTypes(), "session.resume"); n != 1 {
		t.Errorf("the CLI recorded %d session.resume, want 1", n)
	}
	resumed := again.WaitFor("session.resume").GetEvent().GetSessionResume()
	if resumed.GetSessionWasActive() {
		t.Error("session.resume says that the session was active, but it had been disconnected")
	}
}

func TestSessionResumeUnknown(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	_, err := r.Client.ResumeSession(r.Ctx, "00000000-0000-4000-8000-000000000000", r.Options())
	harness.WantError(t, err, codes.NotFound, notFound)
	_, err = r.Client.JoinSession(r.Ctx, "00000000-0000-4000-8000-000000000000", copilot.SessionOptions{})
	harness.WantError(t, err, codes.NotFound, notFound)
}

func TestSessionDelete(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	s.Ask("hello")
	if err := s.Delete(r.Ctx); err != nil {
		t.Fatalf("delete: %v", err)
	}
	_, err := r.Client.Session(s.ID()).Get(r.Ctx)
	harness.WantError(t, err, codes.NotFound, notFound)
	_, err = r.Client.ResumeSession(r.Ctx, s.ID(), r.Options())
	harness.WantError(t, err, codes.NotFound, notFound)
	harness.WantError(t, r.Client.DeleteSession(r.Ctx, s.ID()), codes.NotFound, notFound)
	here := copilot.ListOptions{Filter: &bridgev1.SessionFilter{WorkingDirectory: r.Dir}}
	for one, err := range r.Client.ListSessions(r.Ctx, here) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("a deleted session is listed: %v", one)
	}
	if recorded := s.Record(); recorded != nil {
		t.Errorf("the CLI still has a record of %d events", len(recorded))
	}
}

// Of a session without a message the CLI has no files.
func TestSessionDeleteDisconnected(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(*harness.TestSession){
		"with a message": func(s *harness.TestSession) { s.Ask("hello") }, "without a message": func(*harness.TestSession) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := harness.NewFixture(t, harness.Echo)
			s := r.Session(r.Options())
			use(s)
			if err := s.Disconnect(r.Ctx); err != nil {
				t.Fatal(err)
			}
			if err := r.Client.DeleteSession(r.Ctx, s.ID()); err != nil {
				t.Fatalf("delete: %v", err)
			}
			_, err := r.Client.ResumeSession(r.Ctx, s.ID(), r.Options())
			harness.WantError(t, err, codes.NotFound, notFound)
			harness.WantError(t, r.Client.DeleteSession(r.Ctx, s.ID()), codes.NotFound, notFound)
			if recorded := s.Record(); recorded != nil {
				t.Errorf("the CLI still has a record of %d events", len(recorded))
			}
		})
	}
}

// A session can be deleted before its first message: the CLI says that it has no files of it.
func TestSessionDeleteUnused(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	if err := r.Client.DeleteSession(r.Ctx, s.ID()); err != nil {
		t.Fatalf("delete: %v", err)
	}
	harness.WantError(t, r.Client.DeleteSession(r.Ctx, s.ID()), codes.NotFound, notFound)
}

func TestSessionIdempotentCreate(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	req := &bridgev1.CreateSessionRequest{RequestId: rand.Text(), Config: r.Options().Config}
	var ids []string
	for range 2 {
		resp, err := r.Client.Sessions().CreateSession(r.Ctx, req)
		if err != nil {
			t.Fatalf("create: %v", err)
		}
		ids = append(ids, resp.GetSession().GetSessionId())
		r.Own(ids[0])
	}
	if ids[0] != ids[1] {
		t.Errorf("one request id made sessions %q", ids)
	}
	n := 0
	here := copilot.ListOptions{Filter: &bridgev1.SessionFilter{WorkingDirectory: r.Dir}}
	for _, err := range r.Client.ListSessions(r.Ctx, here) {
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
	_, err := r.Client.Sessions().CreateSession(r.Ctx, other)
	harness.WantError(t, err, codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED)
}

func TestSessionLifetimeEndsWithLastParticipant(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	opts := r.Options()
	opts.Lifetime = copilot.LifetimeEndWithLastParticipant
	s := r.Session(opts)
	s.Ask("hello")
	second, err := r.Dial().JoinSession(r.Ctx, s.ID(), copilot.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Get(r.Ctx); err != nil {
		t.Errorf("with a participant left: %v", err)
	}
	watched := make(chan error, 1)
	go func() {
		for _, err := range r.Client.Session(s.ID()).Events(r.Ctx) {
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
	_, err = r.Client.Session(s.ID()).Get(r.Ctx)
	harness.WantError(t, err, codes.NotFound, notFound)
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
