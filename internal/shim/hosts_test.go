package shim

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// hostScript has a CLI in which hosts can be started, and whose turns call the owner of host h1.
func hostScript() fakecli.Script {
	s := replying(map[string]string{
		"host.start": `{"hostId":"h1"}`, "host.dispose": `{}`, "host.listSessions": `{"sessions":[]}`,
		"host.publishSession": `{"sessionId":"s1","sessionUri":"ahp-session:/s1"}`, "host.unpublishSession": `{"unpublished":true}`,
		"host.createSession": `{"sessionId":"s1"}`, "host.releaseSession": `{}`, "host.getConfiguration": `{}`,
		"host.getEnvironmentCredentials": `{}`, "host.ready": `{}`,
	})
	s.Prompts = []fakecli.Prompt{{Match: "materialize", Turns: []fakecli.Turn{{
		Requests: []fakecli.Reverse{{
			Method: "host.materializeSession",
			Params: json.RawMessage(`{"hostId":"h1","handoffId":"o1","config":{"sessionId":"s2"}}`),
		}},
		Text: "{{answer}}",
	}}}}
	return s
}

// The CLI's methods host.* work where the program has the bridge to itself, and nowhere else. Requests and
// notifications about a host reach the connection that started it, and no other.
func TestHosts(t *testing.T) {
	t.Parallel()
	s := hostScript()
	shared := newFixture(t, s).connect(false)
	r := newFixtureWith(t, s, sole)
	owner, other := r.connect(false), r.connect(false)
	owner.answer = func(method string, params json.RawMessage) (json.RawMessage, error) {
		owner.hear(method + " " + string(params))
		return json.RawMessage(`{"sessionId":"s2"}`), nil
	}
	other.answer = func(method string, _ json.RawMessage) (json.RawMessage, error) {
		return nil, &rpcconn.Error{Code: codeInternal, Message: "not the owner of " + method}
	}
	owner.call("session.create", creation)
	for _, method := range []string{
		"host.start", "host.listSessions", "host.publishSession", "host.unpublishSession", "host.createSession",
		"host.releaseSession", "host.getConfiguration", "host.getEnvironmentCredentials", "host.ready",
	} {
		const params = `{"hostId":"h1","sessionId":"s1","handoffId":"o1","config":{}}`
		if got, want := owner.call(method, params), string(s.Replies[method]); got != want {
			t.Errorf("%s: got %s, want %s", method, got, want)
		}
		if got := shared.call(method, params); !strings.Contains(got, "Unhandled method "+method) {
			t.Errorf("in a shared bridge %s: %s", method, got)
		}
	}
	owner.call("session.send", `{"sessionId":"s1","prompt":"materialize"}`)
	// The fake CLI adds the session of the turn.
	owner.await(`host.materializeSession {"sessionId":"s1","hostId":"h1","handoffId":"o1","config":{"sessionId":"s2"}}`, 1)

	hosts := r.server.config.Hosts
	released := `{"hostId":"h1","handoffId":"o1"}`
	hosts.Notification("host.sessionReleased", []byte(released))
	owner.await("host.sessionReleased", 1)
	owner.mu.Lock()
	told := slices.Clone(owner.told)
	owner.mu.Unlock()
	if !slices.Contains(told, "host.sessionReleased "+released) {
		t.Errorf("told %q", told)
	}
	if slices.ContainsFunc(other.said(), func(what string) bool { return strings.HasPrefix(what, "host.") }) {
		t.Errorf("the other connection heard %q", other.said())
	}

	// The host of another connection is none, and ends with its own.
	other.call("host.dispose", `{"hostId":"h1"}`)
	if hosts.owner("h1") == nil || disposed(r.cli, "h1") {
		t.Error("another connection has ended the host")
	}
	owner.end()
	if hosts.owner("h1") != nil || !disposed(r.cli, "h1") {
		t.Error("the host has outlived its connection")
	}
	if _, err := hosts.Request(t.Context(), "host.materializeSession", []byte(`{"hostId":"h1"}`)); err == nil {
		t.Error("a request for a host without an owner is answered")
	}
}

// disposed reports whether the CLI was asked to end a host.
func disposed(cli *fakecli.CLI, id string) bool {
	return slices.ContainsFunc(cli.Log(), func(e fakecli.Entry) bool {
		return e.Kind == fakecli.EntryReceived && e.Type == "host.dispose" && strings.Contains(string(e.Body), `"`+id+`"`)
	})
}

// A host that could not be started, or that has ended, has no owner.
func TestHostEnds(t *testing.T) {
	t.Parallel()
	r := newFixtureWith(t, hostScript(), sole)
	p := r.connect(false)
	hosts := r.server.config.Hosts
	p.call("host.start", `{"hostId":"h1"}`)
	hosts.Notification(hostExited, []byte(`{"hostId":"h1","reason":"disposed"}`))
	p.await(hostExited, 1)
	if hosts.owner("h1") != nil {
		t.Error("a host that has ended has an owner")
	}
	refusing := newFixtureWith(t, fakecli.Script{}, sole)
	if got := refusing.connect(false).call("host.start", `{"hostId":"h2"}`); !strings.Contains(got, `"code"`) {
		t.Errorf("started: %s", got)
	}
	if refusing.server.config.Hosts.owner("h2") != nil {
		t.Error("a host that was not started has an owner")
	}
}
