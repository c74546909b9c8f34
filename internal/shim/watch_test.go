package shim

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// used creates a session, has a turn in it, and ends it in the midst of another, after what
// else is to happen.
func used(p *program, id string, before func()) {
	over := make(chan struct{})
	defer close(over)
	p.answer = func(method string, _ json.RawMessage) (json.RawMessage, error) {
		p.hear("asked")
		<-over
		return nil, &rpcconn.Error{Code: codeInternal, Message: "too late for " + method}
	}
	p.call("session.create", `{"sessionId":"`+id+`","requestUserInput":true}`)
	p.call("session.send", `{"sessionId":"`+id+`","prompt":"hello"}`)
	p.await("session.idle", 1)
	before()
	p.call("session.send", `{"sessionId":"`+id+`","prompt":"which one"}`)
	p.await("asked", 1)
	p.call("session.destroy", `{"sessionId":"`+id+`"}`)
	p.await(hostEvent, 1)
}

// newUnloadingFixture is newFixture with a bridge that unloads an idle session within milliseconds, but only in unload: a session
// that is unloaded before its first prompt is forgotten by the CLI, and created a second time.
func newUnloadingFixture(t *testing.T) *fixture {
	t.Helper()
	r := newFixtureWith(t, script, func(c *app.Config) { c.IdleUnload = time.Millisecond })
	r.idleUnload(time.Hour)
	return r
}

// idleUnload changes how long a session must be idle before it is unloaded.
func (r *fixture) idleUnload(after time.Duration) {
	r.t.Helper()
	c := r.config
	c.IdleUnload = after
	if err := r.app.Reload(c); err != nil {
		r.t.Fatal(err)
	}
}

// unload waits until the bridge has unloaded a session, which is idle.
func (r *fixture) unload(id string) {
	r.t.Helper()
	r.idleUnload(time.Millisecond)
	sessions := bridgev1.NewSessionServiceClient(r.server.config.Bridge)
	until(r.t, "the session to be unloaded", func() bool {
		s, err := sessions.GetSession(r.t.Context(), &bridgev1.GetSessionRequest{SessionId: id})
		return err == nil && s.GetSession().GetState() == bridgev1.SessionState_SESSION_STATE_UNLOADED
	})
	r.idleUnload(time.Hour)
}

// hosted are the notifications to the host.
func (p *program) hosted() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.host)
}

// A program gets the CLI's notifications to its host about its sessions, unchanged; not about other sessions, and not
// about unloads by the bridge.
func TestHostEvents(t *testing.T) {
	t.Parallel()
	direct := newFixture(t, script).connect(true)
	used(direct, "s1", func() {})
	r := newUnloadingFixture(t)
	p, other := r.connect(false), r.connect(false)
	p.call("ping", `{}`)
	used(p, "s1", func() { r.unload("s1") })
	if got, want := p.hosted(), direct.hosted(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	used(other, "s2", func() {})
	if got := other.hosted(); len(got) != 1 || !strings.Contains(got[0], `"s2"`) {
		t.Errorf("told of another session: %q", got)
	}
	if got := r.server.Counts().Typed[hostEvent]; got != 2 {
		t.Errorf("%d host events are counted, want 2", got)
	}
}

// lifecycle are the session.lifecycle notifications.
func (p *program) lifecycle() (told []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range p.told {
		if params, ok := strings.CutPrefix(text, "session.lifecycle "); ok {
			told = append(told, params)
		}
	}
	return told
}

// A program gets the CLI's own session.lifecycle notifications: all of them, in order, with their metadata, except those
// that the bridge causes.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	live := func(p *program, before func()) []string {
		p.call("session.create", `{"sessionId":"s1"}`)
		p.call("session.send", `{"sessionId":"s1","prompt":"hello"}`)
		p.await("session.idle", 1)
		before()
		p.call("session.send", `{"sessionId":"s1","prompt":"hello"}`)
		p.await("session.idle", 2)
		p.call("session.destroy", `{"sessionId":"s1"}`)
		p.call("session.delete", `{"sessionId":"s1"}`)
		p.await("session.deleted", 1)
		return masked(t, p.lifecycle())
	}
	want := live(newFixture(t, script).connect(true), func() {})
	r := newUnloadingFixture(t)
	p := r.connect(false)
	p.call("ping", `{}`)
	got := live(p, func() { r.unload("s1") })
	if !slices.Equal(got, want) || len(want) < 3 {
		t.Errorf("told\n got %q\nwant %q", got, want)
	}
}

// The CLI reports no host event of a session that the program has detached from.
func TestDetachIsSilent(t *testing.T) {
	t.Parallel()
	p := newFixture(t, script).connect(false)
	for _, id := range []string{"s1", "s2"} {
		p.call("session.create", `{"sessionId":"`+id+`"}`)
		p.call("session.send", `{"sessionId":"`+id+`","prompt":"hello"}`)
	}
	p.await("session.idle", 2)
	p.call("session.detach", `{"sessionId":"s1"}`)
	p.call("session.destroy", `{"sessionId":"s2"}`)
	p.await(hostEvent, 1)
	if got := p.hosted(); len(got) != 1 || !strings.Contains(got[0], `"s2"`) {
		t.Errorf("told %q, want the event of s2", got)
	}
}

// until polls until a condition holds, for changes that no event reports.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
