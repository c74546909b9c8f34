package sessions_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// reopenedAfter is the next life of a bridge that is killed now, with something done to its
// data directory in between.
func reopenedAfter(k *bridgetest.Bridge, do func(data string)) *bridgetest.Bridge {
	k.T.Helper()
	data := filepath.Join(k.T.TempDir(), "data")
	k.CopyData(data)
	if len(k.Processes()) > 0 {
		k.FakeCLI().Kill()
	}
	do(data)
	return k.Reopen(data)
}

// texts returns the user's messages in a session, by position.
func texts(k *bridgetest.Bridge, id string) map[string]string {
	k.T.Helper()
	out := map[string]string{}
	q := &bridgev1.ListEventsRequest{SessionId: id}
	for {
		page, err := k.Events.ListEvents(k.Context(), q)
		if err != nil {
			k.T.Fatal(err)
		}
		for _, e := range page.GetEvents() {
			if m := e.GetEvent().GetUserMessage(); m != nil {
				out[e.GetPosition().String()] = m.GetContent()
			}
		}
		if q.PageToken = page.GetNextPageToken(); q.PageToken == "" {
			return out
		}
	}
}

// listed returns how ListSessions describes a session.
func listed(k *bridgetest.Bridge, id string) *bridgev1.Session {
	k.T.Helper()
	list, err := k.Sessions.ListSessions(k.Context(), &bridgev1.ListSessionsRequest{})
	if err != nil {
		k.T.Fatal(err)
	}
	i := slices.IndexFunc(list.GetSessions(), func(s *bridgev1.Session) bool { return s.GetSessionId() == id })
	if i < 0 {
		return nil
	}
	return list.GetSessions()[i]
}

// withoutState is a session with two turns, after a restart that did not find its state.
func withoutState(t *testing.T) (k *bridgetest.Bridge, said map[string]string) {
	t.Helper()
	k = bridgetest.New(t, fakecli.Script{}, bridgetest.Stored)
	k.Create("s1")
	k.Create("s2")
	for _, text := range []string{"one", "two"} {
		k.Ask("s1", text)
	}
	said = texts(k, "s1")
	return reopenedAfter(k, func(data string) {
		if err := os.Remove(filepath.Join(data, "sessions", "s1", "session")); err != nil {
			t.Fatal(err)
		}
	}), said
}

// A session whose state is gone is listed as damaged, is in the way of no other call, and a
// resume opens it with all its positions.
func TestSessionWithoutState(t *testing.T) {
	t.Parallel()
	k, said := withoutState(t)
	got, err := k.Sessions.GetSession(k.Context(), &bridgev1.GetSessionRequest{SessionId: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	for how, s := range map[string]*bridgev1.Session{"listed": listed(k, "s1"), "got": got.GetSession()} {
		d := s.GetDamage()
		if s.GetState() != bridgev1.SessionState_SESSION_STATE_DAMAGED || d.GetPath() != "damaged/s1" || d.GetReason() == "" || !d.GetDetectTime().IsValid() {
			t.Errorf("%s it is %v", how, s)
		}
	}
	if s := listed(k, "s2"); s.GetState() == bridgev1.SessionState_SESSION_STATE_DAMAGED {
		t.Errorf("the other session is %v", s)
	}
	_, err = k.Turns.Send(k.Context(), &bridgev1.SendRequest{SessionId: "s1", Prompt: &bridgev1.Prompt{Text: "three"}})
	if f, _ := fields.AsFault(err); f == nil || f.Reason != fault.SessionNotFound || !strings.Contains(f.Message, "damaged") {
		t.Errorf("sending fails with %v", err)
	}
	_, err = k.Sessions.CreateSession(k.Context(), &bridgev1.CreateSessionRequest{SessionId: "s1"})
	if fault.ReasonOf(err) != fault.SessionExists {
		t.Errorf("making it again fails with %v", err)
	}
	if _, err := k.Sessions.ResumeSession(k.Context(), &bridgev1.ResumeSessionRequest{SessionId: "s1"}); err != nil {
		t.Fatal(err)
	}
	if now := texts(k, "s1"); !maps.Equal(now, said) {
		t.Errorf("said was %v, and is %v", said, now)
	}
	k.Ask("s1", "three")
	k.AwaitOutbox("s1") // otherwise the next life loads the session
	k = reopenedAfter(k, func(string) {})
	if s := listed(k, "s1"); s.GetState() != bridgev1.SessionState_SESSION_STATE_UNLOADED || s.GetDamage() != nil {
		t.Errorf("after a restart it is %v", s)
	}
	if now := texts(k, "s1"); len(now) != 3 {
		t.Errorf("after a restart it has %v", now)
	}
}

// A damaged session that the CLI does not have either cannot be resumed, and its data stay
// until it is deleted.
func TestDamagedSessionStays(t *testing.T) {
	t.Parallel()
	k, _ := withoutState(t)
	segments := func() (found []string) {
		for _, place := range []string{"sessions", "damaged"} {
			some, _ := filepath.Glob(filepath.Join(k.Data, place, "s1", "*.seg"))
			found = append(found, some...)
		}
		return found
	}
	if err := os.RemoveAll(filepath.Join(k.Home, "session-state", "s1")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := k.Sessions.ResumeSession(k.Context(), &bridgev1.ResumeSessionRequest{SessionId: "s1"}); fault.ReasonOf(err) != fault.SessionNotFound {
			t.Errorf("resuming it fails with %v", err)
		}
		if s := listed(k, "s1"); s.GetState() != bridgev1.SessionState_SESSION_STATE_DAMAGED || len(segments()) != 1 {
			t.Fatalf("after a resume in vain it is %v, with %v", s, segments())
		}
	}
	if _, err := k.Sessions.DeleteSession(k.Context(), &bridgev1.DeleteSessionRequest{SessionId: "s1"}); err != nil {
		t.Errorf("deleting it: %v", err)
	}
	if s := listed(k, "s1"); s != nil || len(segments()) > 0 {
		t.Errorf("deleted, it is %v, with %v", s, segments())
	}
	_, err := k.Sessions.DeleteSession(k.Context(), &bridgev1.DeleteSessionRequest{SessionId: "s1"})
	if f, _ := fields.AsFault(err); f == nil || f.Reason != fault.SessionNotFound {
		t.Errorf("deleting it twice: %v", err)
	}
	k.Create("s1") // the id is free
}

// A state that goes while the server runs is no reason to begin a new session on the journal
// of the old one.
func TestStateGoesWhileRunning(t *testing.T) {
	t.Parallel()
	k := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored)
	k.Create("s1")
	k.Ask("s1", "one")
	said := texts(k, "s1")
	k = reopenedAfter(k, func(data string) {
		bridgetest.MoveEvents(t, data)
		// Nothing knows of the session but its journal, as when all of it was copied too late.
		if err := os.Rename(filepath.Join(data, "sessions", "s1"), filepath.Join(data, "later")); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(data, "later", "session")); err != nil {
			t.Fatal(err)
		}
	})
	if err := os.Rename(filepath.Join(k.Data, "later"), filepath.Join(k.Data, "sessions", "s1")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(k.Home, "session-state", "s1")); err != nil { // or the CLI has it
		t.Fatal(err)
	}
	_, err := k.Sessions.CreateSession(k.Context(), &bridgev1.CreateSessionRequest{SessionId: "s1"})
	if fault.ReasonOf(err) != fault.SessionExists {
		t.Errorf("making it fails with %v", err)
	}
	if s := listed(k, "s1"); s.GetState() != bridgev1.SessionState_SESSION_STATE_DAMAGED || len(said) != 1 {
		t.Errorf("it is %v", s)
	}
}

// Events that are damaged on disk, and that the CLI's history has, are there again once the
// session was loaded.
func TestDamagedEventsComeFromTheHistory(t *testing.T) {
	t.Parallel()
	k := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored)
	k.Create("s1")
	for _, text := range []string{"one", "two", "three"} {
		k.Ask("s1", text)
	}
	k.AwaitOutbox("s1") // otherwise the next life loads the session
	k = reopenedAfter(k, func(data string) {
		bridgetest.MoveEvents(t, data)
		segments, err := filepath.Glob(filepath.Join(data, "sessions", "s1", "*.seg"))
		if err != nil || len(segments) != 1 {
			t.Fatalf("the journal is in %v, %v", segments, err)
		}
		text, err := os.ReadFile(segments[0])
		if err != nil {
			t.Fatal(err)
		}
		text[strings.Index(string(text), `"two"`)] = 0
		if err := os.WriteFile(segments[0], text, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if got := slices.Sorted(maps.Values(texts(k, "s1"))); !slices.Equal(got, []string{"one", "three"}) {
		t.Errorf("of three messages, one damaged, there are %q", got)
	}
	k.Ask("s1", "four")
	if got := slices.Sorted(maps.Values(texts(k, "s1"))); !slices.Equal(got, []string{"four", "one", "three", "two"}) {
		t.Errorf("once it was loaded there are %q", got)
	}
}
