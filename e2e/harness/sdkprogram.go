package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// ShimScript has a turn with a tool, one with a question, one that is aborted, and others.
const ShimScript = `
rules:
  - when: {user: "use the tool"}
    reply: [{text: "Calling."}, {tool_call: {name: lookup, arguments: {q: "x"}}}]
  - when: {user: "ask me"}
    reply: [{tool_call: {name: ask_user, arguments: {question: "Which?", choices: ["a", "b"]}}}]
  - when: {tool_result: {}}
    reply: [{text: "So it is."}]
  - when: {user: "take your time"}
    reply: [{text: "I begin, and"}, {hang: true}]
default: {reply: [{text: "You said: {{user}}"}]}`

// SDKProgram speaks the CLI's JSON-RPC to a child process.
type SDKProgram struct {
	t    *testing.T
	ctx  context.Context
	Conn *rpcconn.Conn
	Cmd  *exec.Cmd

	Mu     sync.Mutex
	Stderr bytes.Buffer // once it has ended
	Events []string
	hooks  map[string]int
	change chan struct{}
	work   sync.WaitGroup
	// host has what the CLI told its host.
	Host chan json.RawMessage
}

// childIO is a child's stdin and stdout.
type childIO struct {
	io.ReadCloser
	io.WriteCloser
}

// Close implements io.Closer.
func (c childIO) Close() error {
	_ = c.WriteCloser.Close()
	return c.ReadCloser.Close()
}

// StartSDKProgram starts a program of an SDK, and ends it with the test.
func StartSDKProgram(t *testing.T, ctx context.Context, env []string, command ...string) *SDKProgram {
	t.Helper()
	p := &SDKProgram{t: t, ctx: ctx, change: make(chan struct{}), hooks: map[string]int{},
		Host: make(chan json.RawMessage, 16)}
	p.Cmd = exec.Command(command[0],
		append(command[1:], "--headless", "--no-auto-update", "--no-auto-login", "--stdio")...)
	p.Cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "TERM=dumb", "COPILOT_HOME="+t.TempDir())
	p.Cmd.Dir, p.Cmd.Stderr = RealDir(t), &p.Stderr
	in, err := p.Cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.Conn = rpcconn.New(childIO{out, in}, rpcconn.Options{
		Event: p.event,
		Notification: func(method string, params []byte) {
			if method == "host.event" {
				select {
				case p.Host <- bytes.Clone(params):
				default: // more than is printed
				}
			}
		},
		Request: func(_ context.Context, q *rpcconn.Request) (json.RawMessage, error) {
			return p.answer(q), nil
		},
	})
	t.Cleanup(func() {
		_ = p.Conn.Close()
		p.Conn.Wait()
		p.work.Wait()
		_ = p.Cmd.Wait()
	})
	return p
}

func (p *SDKProgram) note(what string) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.Events = append(p.Events, what)
	close(p.change)
	p.change = make(chan struct{})
}

// answer answers a request of the CLI. Hooks are only counted: where they come among events
// is not the same twice.
func (p *SDKProgram) answer(q *rpcconn.Request) json.RawMessage {
	if q.Method == "hooks.invoke" {
		var hook struct{ HookType string }
		_ = json.Unmarshal(q.Params, &hook) // none is one more type
		p.Mu.Lock()
		defer p.Mu.Unlock()
		p.hooks[hook.HookType]++
		return json.RawMessage(`{}`)
	}
	p.note("request " + q.Method)
	if q.Method == "userInput.request" {
		return json.RawMessage(`{"answer":"b","wasFreeform":false}`)
	}
	return json.RawMessage(`{}`)
}

func (p *SDKProgram) event(body []byte) {
	var m struct {
		Params struct {
			SessionID string
			Event     struct {
				Type      string
				Ephemeral bool
				Data      struct{ RequestID string }
			}
		}
	}
	if err := json.Unmarshal(body, &m); err != nil {
		p.t.Errorf("event: %v", err)
		return
	}
	e := m.Params.Event
	answers := map[string][2]string{
		"permission.requested":    {"session.permissions.handlePendingPermissionRequest", `{"kind":"approve-once"}`},
		"external_tool.requested": {"session.tools.handlePendingToolCall", `"found"`},
	}
	if a, ok := answers[e.Type]; ok {
		p.work.Go(func() {
			p.Call(a[0], `{"sessionId":"`+m.Params.SessionID+`","requestId":"`+e.Data.RequestID+`","result":`+a[1]+`}`)
		})
	}
	if (!e.Ephemeral || e.Type == "session.idle") && !strings.HasPrefix(e.Type, "hook.") {
		p.note(e.Type)
	}
}

// Call returns the result of a call, or its error as JSON.
func (p *SDKProgram) Call(method, params string) string {
	result, err := p.Conn.Call(p.ctx, method, []byte(params))
	if rpc, ok := err.(*rpcconn.Error); ok {
		text, _ := json.Marshal(rpc)
		return string(text)
	}
	if err != nil {
		p.t.Errorf("%s: %v", method, err)
	}
	var value any // in one order of members
	if json.Unmarshal(result, &value) != nil {
		return string(result)
	}
	text, _ := json.Marshal(value)
	return string(text)
}

// Until waits until an event was seen n times.
func (p *SDKProgram) Until(event string, n int) {
	p.t.Helper()
	for {
		p.Mu.Lock()
		seen, change := slices.Clone(p.Events), p.change
		p.Mu.Unlock()
		if len(slices.DeleteFunc(slices.Clone(seen), func(s string) bool { return s != event })) >= n {
			return
		}
		select {
		case <-change:
		case <-p.ctx.Done():
			p.t.Fatalf("%s not seen %d times in %q", event, n, seen)
		}
	}
}

// Converse is what a program of an SDK does, in short. It returns the results that must be the same with the CLI and
// with the shim.
func (p *SDKProgram) Converse(url string) (results []string) {
	const id = "3f0c1f4e-5a10-4c39-9d9e-0c7a2f1d8b11"
	provider := `{"type":"openai","wireApi":"completions","apiKey":"x","baseUrl":"` + url + `"}`
	p.Call("connect", `{}`)
	open := `{"sessionId":"` + id + `","model":"` + offlinemodel.DefaultModel + `","provider":` + provider + `,
		"streaming":true,"requestPermission":true,"requestUserInput":true,"hooks":true,
		"tools":[{"name":"lookup","description":"d","parameters":{"type":"object","properties":{"q":{"type":"string"}}}}]}`
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(p.Call("session.create", open)), &members); err != nil {
		p.t.Fatal(err)
	}
	for name := range members {
		results = append(results, "created "+name)
	}
	slices.Sort(results)
	for i, prompt := range []string{"hello", "use the tool", "ask me"} {
		p.Call("session.send", `{"sessionId":"`+id+`","prompt":"`+prompt+`"}`)
		p.Until("session.idle", i+1)
	}
	p.Call("session.send", `{"sessionId":"`+id+`","prompt":"take your time"}`)
	p.Until("assistant.turn_start", 6)
	results = append(results, p.Call("session.abort", `{"sessionId":"`+id+`"}`))
	p.Until("session.idle", 4)
	for _, call := range [][2]string{
		{"session.send", `{"sessionId":"nope","prompt":"x"}`},
		{"session.send", `{"prompt":"x"}`},
		{"no.such", `{}`},
		{"session.sendAndWait", `{"sessionId":"` + id + `","prompt":"x"}`},
		{"session.sendAndWait", `{"prompt":"x"}`},
		{"session.resume", `{"sessionId":"00000000-0000-4000-8000-000000000000"}`},
		{"session.create", `{"workingDirectory":"/nowhere/at/all"}`},
		{"session.mode.set", `{"sessionId":"` + id + `","mode":"bogus"}`},
		{"session.tools.handlePendingToolCall", `{"sessionId":"` + id + `","requestId":"nope","result":"x"}`},
		{"session.destroy", `{"sessionId":"nope"}`},
		{"session.destroy", `{}`},
		{"session.detach", `{"sessionId":"nope"}`},
		{"session.delete", `{"sessionId":"nope"}`},
		{"session.delete", `{}`},
		{"session.setForeground", `{"sessionId":"nope"}`},
		{"session.getMessages", `{"sessionId":"nope"}`},
		{"session.resume", `{}`},
		{"session.mode.get", `{}`},
		{"session.no.such", `{"sessionId":"nope"}`},
		{"session.suspend", `{"sessionId":"nope"}`},
		{"sessions.readPersistedEvents", `{}`},
		{"sessions.open", `{}`},
		{"session.suspend", `{"sessionId":"` + id + `"}`},
		{"session.mode.get", `{"sessionId":"` + id + `"}`},
		{"session.shutdown", `{"sessionId":"` + id + `"}`},
		{"session.shutdown", `{"sessionId":"` + id + `"}`},
		{"session.destroy", `{"sessionId":"` + id + `"}`},
		{"session.send", `{"sessionId":"` + id + `","prompt":"x"}`},
		{"session.getMessages", `{"sessionId":"` + id + `"}`},
	} {
		results = append(results, call[0]+" "+p.Call(call[0], call[1]))
	}
	p.Call("session.resume", strings.Replace(open, `"tools":`, `"ignored":`, 1))
	p.Call("session.send", `{"sessionId":"`+id+`","prompt":"hello"}`)
	p.Until("session.idle", 5)
	for _, call := range []string{"session.delete", "session.delete", "session.resume", "session.destroy",
		"runtime.shutdown"} {
		results = append(results, call+" "+p.Call(call, `{"sessionId":"`+id+`"}`))
	}
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return append(append(results, fmt.Sprint("hooks ", p.hooks)), p.Events...)
}
