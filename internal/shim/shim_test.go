package shim

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

const creation = `{"sessionId":"s1","streaming":true,"requestPermission":true,"requestUserInput":true,
	"tools":[{"name":"deploy","description":"d","parameters":{"type":"object"}}],"workingDirectory":"/"}`

var script = fakecli.Script{Prompts: []fakecli.Prompt{
	{Match: "deploy", Turns: []fakecli.Turn{
		{Text: "Calling.", Tools: []fakecli.Tool{{Name: "deploy", Arguments: json.RawMessage(`{"env":"prod"}`)}}},
		{Text: "Done."},
	}},
	{Match: "which", Turns: []fakecli.Turn{{
		Requests: []fakecli.Reverse{{Method: "userInput.request",
			Params: json.RawMessage(`{"question":"Which?","choices":["a","b"],"allowFreeform":true}`)}},
		Text: "Fine.",
	}}},
}}

// talk has a conversation and returns the results of its calls.
func talk(p *program) (results []string) {
	p.answer = func(method string, params json.RawMessage) (json.RawMessage, error) {
		if method != "userInput.request" || !strings.Contains(string(params), `"Which?"`) {
			return nil, &rpcconn.Error{Code: codeMethodNotFound, Message: "Unhandled method " + method}
		}
		p.hear("asked")
		return json.RawMessage(`{"answer":"b","wasFreeform":false}`), nil
	}
	p.on = func(kind string, data json.RawMessage) {
		var d struct{ RequestID string }
		_ = json.Unmarshal(data, &d)
		switch kind {
		case "permission.requested":
			p.call("session.permissions.handlePendingPermissionRequest",
				`{"sessionId":"s1","requestId":"`+d.RequestID+`","result":{"kind":"approve-once"}}`)
		case "external_tool.requested":
			p.call("session.tools.handlePendingToolCall",
				`{"sessionId":"s1","requestId":"`+d.RequestID+`","result":"deployed"}`)
		}
	}
	results = append(results, p.call("connect", `{}`), p.call("ping", `{"message":"x"}`),
		p.call("session.create", creation))
	for i, prompt := range []string{"hello", "deploy it", "which one"} {
		results = append(results, p.call("session.send", `{"sessionId":"s1","prompt":"`+prompt+`"}`))
		p.await("session.idle", i+1)
	}
	for _, call := range [][2]string{
		{"session.abort", `{"sessionId":"s1"}`},
		{"session.send", `{"sessionId":"nope","prompt":"x"}`},
		{"no.such", `{}`},
		{"session.resume", `{"sessionId":"nope"}`},
		{"session.tools.handlePendingToolCall", `{"sessionId":"s1","requestId":"nope","result":"x"}`},
		{"session.getMessages", `{"sessionId":"s1"}`},
		{"session.destroy", `{"sessionId":"nope"}`},
		{"session.destroy", `{"sessionId":"s1"}`},
		{"session.send", `{"sessionId":"s1","prompt":"x"}`},
		{"session.getMessages", `{"sessionId":"s1"}`},
		{"session.mode.get", `{}`},
		{"session.setForeground", `{"sessionId":"s1"}`},
		{"session.suspend", `{"sessionId":"nope"}`},
		{"session.delete", `{"sessionId":"nope"}`},
	} {
		results = append(results, call[0]+": "+p.call(call[0], call[1]))
	}
	return results
}

// masked returns JSON texts with ids and times taken out, in one order of members.
func masked(t *testing.T, texts []string) (out []string) {
	t.Helper()
	for _, text := range texts {
		name, value, ok := strings.Cut(text, ": ")
		if !ok || strings.HasPrefix(text, "{") {
			name, value = "", text
		}
		var v any
		if err := json.Unmarshal([]byte(value), &v); err != nil {
			t.Fatalf("%q: %v", value, err)
		}
		line, err := json.Marshal(mask(v))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, name+string(line))
	}
	return out
}

func mask(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			switch {
			case slices.Contains([]string{"id", "parentId", "messageId", "originatingMessageId", "requestId",
				"toolCallId", "turnId", "nativeSessionId", "interactionId"}, key):
				v[key] = "ID"
			case strings.HasSuffix(strings.ToLower(key), "time") || key == "timestamp":
				v[key] = "TIME"
			default:
				v[key] = mask(value)
			}
		}
	case []any:
		for i := range v {
			v[i] = mask(v[i])
		}
	}
	return v
}

// A program gets the same from the shim as from the CLI: the same results, errors, events and requests in the same
// order.
func TestSameAsTheCLI(t *testing.T) {
	t.Parallel()
	direct := newFixture(t, script).connect(true)
	want := masked(t, talk(direct))
	r := newFixture(t, script)
	p := r.connect(false)
	got := masked(t, talk(p))
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("result %d:\n got %s\nwant %s", i, got[i], want[i])
		}
	}
	// Where replies stand among events is the CLI's affair, but for the order of what it
	// says; lifecycle notifications may repeat.
	answers := []string{
		"session.lifecycle", "reply to session.send", "host.event",
		"reply to session.permissions.handlePendingPermissionRequest", "reply to session.tools.handlePendingToolCall",
	}
	if got, want := p.said(answers...), direct.said(answers...); !slices.Equal(got, want) {
		t.Errorf("heard\n got %q\nwant %q", got, want)
	}
	counts := r.server.Counts()
	for _, name := range []string{"session.create", "session.send", "session.event:assistant.message",
		"userInput.request", "session.tools.handlePendingToolCall"} {
		if counts.Typed[name] == 0 {
			t.Errorf("%s is not counted as typed: %v", name, counts)
		}
	}
	for name := range counts.Raw {
		if name != "no.such" {
			t.Errorf("%s went raw", name)
		}
	}
}

// The answer to session.create comes before the session's first event, as with the CLI, so
// that a program has its handlers in place.
func TestAnswerBeforeEvents(t *testing.T) {
	t.Parallel()
	p := newFixture(t, script).connect(false)
	p.call("session.create", creation)
	p.await("session.start", 1)
	said := p.said("session.lifecycle")
	if said[0] != "reply to session.create" {
		t.Errorf("heard %q", said)
	}
}

// Two connections are two participants: both hear, either may go, and the last takes the
// session with it.
func TestTwoConnections(t *testing.T) {
	t.Parallel()
	r := newFixture(t, script)
	a, b := r.connect(false), r.connect(false)
	a.call("session.create", `{"sessionId":"s1","tools":[{"name":"deploy"}]}`)
	clash := b.call("session.resume", `{"sessionId":"s1","tools":[{"name":"deploy"}]}`)
	if !strings.Contains(clash, "External tool name clash: deploy already registered by another connection") {
		t.Errorf("clash: %s", clash)
	}
	if got := b.call("session.resume", `{"sessionId":"s1","tools":[{"name":"other"}]}`); !strings.Contains(got,
		`"sessionId":"s1"`) {
		t.Fatalf("resume: %s", got)
	}
	if got := b.call("sessionFs.setProvider",
		`{"initialCwd":"/","sessionStatePath":"/x","conventions":"posix"}`); !strings.Contains(got,
		"while sessions are active") {
		t.Errorf("provider: %s", got)
	}
	b.call("session.send", `{"sessionId":"s1","prompt":"hello"}`)
	a.await("session.idle", 1)
	b.await("session.idle", 1)
	a.end()
	b.call("session.send", `{"sessionId":"s1","prompt":"hello again"}`)
	b.await("session.idle", 2)
	b.end()
	c := r.connect(false)
	if got := c.call("session.send", `{"sessionId":"s1","prompt":"x"}`); !strings.Contains(got,
		"Session not found for sessionId: s1") {
		t.Errorf("after the last has gone: %s", got)
	}
}

// A connection may take over the tools of one that its program has just ended, though the shim
// may read its request before the other's end.
func TestToolsOfAnEndedConnection(t *testing.T) {
	t.Parallel()
	r := newFixture(t, script)
	before := r.connect(false)
	before.call("session.create", `{"sessionId":"s1","tools":[{"name":"deploy"}]}`)
	before.call("session.send", `{"sessionId":"s1","prompt":"hello"}`)
	before.await("session.idle", 1)
	for range 20 {
		next := r.connect(false)
		_ = before.conn.Close()
		if got := next.call("session.resume", `{"sessionId":"s1","tools":[{"name":"deploy"}]}`); !strings.Contains(got,
			`"sessionId":"s1"`) {
			t.Fatalf("resume: %s", got)
		}
		before.end()
		before = next
	}
}

// A connection that has to show a token is refused everything else before.
func TestToken(t *testing.T) {
	t.Parallel()
	p := newFixture(t, script, func(c *Config) { c.Token = "secret" }).connect(false)
	for _, step := range []struct{ method, params, want string }{
		{"ping", `{}`, "-32001"},
		{"connect", `{}`, "-32002"},
		{"connect", `{"token":"wrong"}`, "-32002"},
		{"connect", `{"token":"secret"}`, `"protocolVersion":3`},
		{"ping", `{}`, "pong"},
	} {
		if got := p.call(step.method, step.params); !strings.Contains(got, step.want) {
			t.Errorf("%s %s: %s", step.method, step.params, got)
		}
	}
	free := newFixture(t, script).connect(false)
	if got := free.call("connect", `{"token":"x"}`); !strings.Contains(got, "-32003") {
		t.Errorf("a token nobody asked for: %s", got)
	}
}

// A broken connection to the bridge is mended, and the program does not notice.
func TestBrokenConnection(t *testing.T) {
	t.Parallel()
	r := newFixture(t, script)
	p := r.connect(false)
	p.call("session.create", `{"sessionId":"s1","streaming":true}`)
	p.call("session.send", `{"sessionId":"s1","prompt":"one"}`)
	p.await("session.idle", 1)
	for i := range 3 {
		r.cut()
		if got := p.call("session.send", `{"sessionId":"s1","prompt":"more"}`); !strings.Contains(got, "messageId") {
			t.Fatalf("after a cut: %s", got)
		}
		p.await("session.idle", i+2)
	}
	counts := map[string]int{}
	for _, what := range p.said() {
		counts[what]++
	}
	if counts["session.start"] != 1 || counts["user.message"] != 4 || counts["assistant.message"] != 4 {
		t.Errorf("heard %v", counts)
	}
}

// TestShutdown asks for the end while another program is there. The bridge has ended when the
// answer comes; after it, requests are refused as the CLI does it, on every connection.
func TestShutdown(t *testing.T) {
	t.Parallel()
	var closed atomic.Int32
	r := newFixture(t, script, func(c *Config) {
		c.Shutdown = func() { closed.Add(1) }
		c.linger = patience // the programs end the connections
	})
	p, other := r.connect(false), r.connect(false)
	p.call("session.create", `{"sessionId":"s1"}`)
	if got := p.call("runtime.shutdown", `{}`); got != "null" || closed.Load() != 1 {
		t.Errorf("answered %s when the bridge was closed %d times", got, closed.Load())
	}
	<-r.server.Down()
	for _, q := range []*program{p, other} {
		for method, want := range map[string]string{
			"ping":             `{"code":-32000,"message":"SERVER_SHUTTING_DOWN"}`,
			"connect":          `{"code":-32000,"message":"SERVER_SHUTTING_DOWN"}`,
			"session.create":   `{"code":-32000,"message":"SERVER_SHUTTING_DOWN"}`,
			"no.such":          `{"code":-32601,"message":"Unhandled method no.such"}`,
			"runtime.shutdown": "null",
		} {
			if got := q.call(method, `{}`); got != want {
				t.Errorf("%s after the answer: %s, want %s", method, got, want)
			}
		}
	}
	if closed.Load() != 1 {
		t.Errorf("the bridge was closed %d times", closed.Load())
	}
}

// TestShutdownEnds asks for the end and leaves the connection open: the shim closes it.
func TestShutdownEnds(t *testing.T) {
	t.Parallel()
	p := newFixture(t, script).connect(false)
	if got := p.call("runtime.shutdown", `{}`); got != "null" {
		t.Errorf("answered %s", got)
	}
	<-p.conn.Done()
}

// TestSendAndWait calls a method that no supported CLI has. An SDK falls back to session.send at
// this code alone.
func TestSendAndWait(t *testing.T) {
	t.Parallel()
	p := newFixtureWith(t, script, func(c *app.Config) { c.Raw = false }).connect(false)
	p.call("session.create", creation)
	for _, params := range []string{`{"sessionId":"s1","prompt":"hello"}`, `{"sessionId":"nope"}`, `{}`} {
		want := `{"code":-32601,"message":"Unhandled method session.sendAndWait"}`
		if got := p.call("session.sendAndWait", params); got != want {
			t.Errorf("%s: %s, want %s", params, got, want)
		}
	}
}

// The field numbers that frames are read by are the numbers in the messages.
func TestFieldNumbers(t *testing.T) {
	t.Parallel()
	for _, field := range []struct {
		m    proto.Message
		name string
		want protowire.Number
	}{
		{&bridgev1.AttachResponse{}, "stream", fieldStream},
		{&bridgev1.SubscribeResponse{}, "events", fieldEvents},
		{&bridgev1.EventBatch{}, "events", fieldBatch},
		{&bridgev1.Event{}, "position", fieldPosition},
		{&bridgev1.Event{}, "event", fieldEvent},
		{&bridgev1.Event{}, "cause", fieldCause},
		{&bridgev1.Event{}, "truncated", fieldTruncated},
		{&bridgev1.AttachRequest{}, "command", fieldCommand},
		{&bridgev1.AttachCommand{}, "command_id", fieldCommandID},
		{&bridgev1.AttachCommand{}, "request_id", fieldRequestID},
		{&bridgev1.AttachCommand{}, "exact_send", fieldExactSend},
		{&cliv1.SessionEvent{}, "type", fieldType},
		{&cliv1.SessionEvent{}, "unrecognized", fieldUnrecognized},
	} {
		fields := field.m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if fd := fields.Get(i); string(fd.Name()) == field.name && fd.Number() != field.want {
				t.Errorf("%s is %d, not %d", fd.FullName(), fd.Number(), field.want)
			}
		}
	}
}

// The bridge asks a program once for something that the program provides for the whole process, although each of its
// connections in the session can answer; when the first connection is gone, it asks another one.
func TestProviderIsAskedOnce(t *testing.T) {
	t.Parallel()
	s := newFixture(t, fakecli.Script{}).server
	var turned []string
	again := func(who string) func() { return func() { turned = append(turned, who) } }
	first, end := context.WithCancel(t.Context())
	over, mine := s.once(first, "s1", "c1", again("first"))
	if !mine {
		t.Fatal("the first is not to ask")
	}
	for _, who := range []string{"second", "third"} {
		if _, mine := s.once(t.Context(), "s1", "c1", again(who)); mine {
			t.Errorf("the %s is to ask as well", who)
		}
	}
	if _, mine := s.once(t.Context(), "s2", "c1", again("other")); !mine {
		t.Error("another session's callback is taken for it")
	}
	end()
	over()
	if want := []string{"second", "third"}; !slices.Equal(turned, want) {
		t.Errorf("the first has gone: turned to %q, want %q", turned, want)
	}
	turned = nil
	over, mine = s.once(t.Context(), "s1", "c1", again("second"))
	if _, again := s.once(t.Context(), "s1", "c1", again("third")); !mine || again {
		t.Error("its successor is not one")
	}
	over()
	if len(turned) > 0 {
		t.Errorf("it was answered: turned to %q, want nobody", turned)
	}
}
