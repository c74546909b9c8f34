package e2e

import (
	"context"
	"encoding/json"
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

// shimScript has a turn with a tool, one with a question, one that is aborted, and others.
const shimScript = `
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

// sdkProgram speaks the CLI's JSON-RPC to a child process.
type sdkProgram struct {
	t    *testing.T
	ctx  context.Context
	conn *rpcconn.Conn
	cmd  *exec.Cmd

	mu     sync.Mutex
	events []string
	change chan struct{}
	work   sync.WaitGroup
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

func startSDKProgram(t *testing.T, ctx context.Context, env []string, command ...string) *sdkProgram {
	t.Helper()
	p := &sdkProgram{t: t, ctx: ctx, change: make(chan struct{})}
	p.cmd = exec.Command(command[0], append(command[1:], "--headless", "--no-auto-update", "--no-auto-login", "--stdio")...)
	p.cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "TERM=dumb", "COPILOT_HOME="+t.TempDir())
	p.cmd.Dir = realDir(t)
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.conn = rpcconn.New(childIO{out, in}, rpcconn.Options{
		Event: p.event,
		Request: func(_ context.Context, q *rpcconn.Request) (json.RawMessage, error) {
			p.note("request " + q.Method)
			if q.Method == "userInput.request" {
				return json.RawMessage(`{"answer":"b","wasFreeform":false}`), nil
			}
			return json.RawMessage(`{}`), nil
		},
	})
	t.Cleanup(func() {
		_ = p.conn.Close()
		p.conn.Wait()
		p.work.Wait()
		_ = p.cmd.Wait()
	})
	return p
}

func (p *sdkProgram) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, what)
	close(p.change)
	p.change = make(chan struct{})
}

func (p *sdkProgram) event(body []byte) {
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
			p.call(a[0], `{"sessionId":"`+m.Params.SessionID+`","requestId":"`+e.Data.RequestID+`","result":`+a[1]+`}`)
		})
	}
	if !e.Ephemeral || e.Type == "session.idle" {
		p.note(e.Type)
	}
}

// call returns the result of a call, or its error as JSON.
func (p *sdkProgram) call(method, params string) string {
	result, err := p.conn.Call(p.ctx, method, []byte(params))
	if rpc, ok := err.(*rpcconn.Error); ok {
		text, _ := json.Marshal(rpc)
		return string(text)
	}
	if err != nil {
		p.t.Errorf("%s: %v", method, err)
	}
	return string(result)
}

// until waits until an event was seen n times.
func (p *sdkProgram) until(event string, n int) {
	p.t.Helper()
	for {
		p.mu.Lock()
		seen, change := slices.Clone(p.events), p.change
		p.mu.Unlock()
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

// converse is what a program of an SDK does, in short. It returns what is to be the same
// whoever it speaks to.
func (p *sdkProgram) converse(url string) (results []string) {
	const id = "3f0c1f4e-5a10-4c39-9d9e-0c7a2f1d8b11"
	provider := `{"type":"openai","wireApi":"completions","apiKey":"x","baseUrl":"` + url + `"}`
	p.call("connect", `{}`)
	open := `{"sessionId":"` + id + `","model":"` + offlinemodel.DefaultModel + `","provider":` + provider + `,
		"streaming":true,"requestPermission":true,"requestUserInput":true,
		"tools":[{"name":"lookup","description":"d","parameters":{"type":"object","properties":{"q":{"type":"string"}}}}]}`
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(p.call("session.create", open)), &members); err != nil {
		p.t.Fatal(err)
	}
	for name := range members {
		results = append(results, "created "+name)
	}
	slices.Sort(results)
	for i, prompt := range []string{"hello", "use the tool", "ask me"} {
		p.call("session.send", `{"sessionId":"`+id+`","prompt":"`+prompt+`"}`)
		p.until("session.idle", i+1)
	}
	p.call("session.send", `{"sessionId":"`+id+`","prompt":"take your time"}`)
	p.until("assistant.turn_start", 6)
	results = append(results, p.call("session.abort", `{"sessionId":"`+id+`"}`))
	p.until("session.idle", 4)
	for _, call := range [][2]string{
		{"session.send", `{"sessionId":"nope","prompt":"x"}`},
		{"session.send", `{"prompt":"x"}`},
		{"no.such", `{}`},
		{"session.resume", `{"sessionId":"00000000-0000-4000-8000-000000000000"}`},
		{"session.create", `{"workingDirectory":"/nowhere/at/all"}`},
		{"session.mode.set", `{"sessionId":"` + id + `","mode":"bogus"}`},
		{"session.tools.handlePendingToolCall", `{"sessionId":"` + id + `","requestId":"nope","result":"x"}`},
		{"session.destroy", `{"sessionId":"nope"}`},
		{"session.destroy", `{"sessionId":"` + id + `"}`},
		{"session.send", `{"sessionId":"` + id + `","prompt":"x"}`},
	} {
		results = append(results, call[0]+" "+p.call(call[0], call[1]))
	}
	p.call("session.resume", strings.Replace(open, `"tools":`, `"ignored":`, 1))
	p.call("session.send", `{"sessionId":"`+id+`","prompt":"hello"}`)
	p.until("session.idle", 5)
	results = append(results, p.call("session.delete", `{"sessionId":"`+id+`"}`), p.call("runtime.shutdown", `{}`))
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(results, p.events...)
}

// A program of the CLI hears the same through the shim, with a bridge of the shim's own, as
// from the CLI itself.
func TestShimIsLikeTheCLI(t *testing.T) {
	t.Parallel()
	skipWithoutCLI(t)
	path, err := program() // before the test's time begins
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, shimScript)
	cli := os.Getenv(cliEnv)
	home := "HOME=" + t.TempDir()
	want := startSDKProgram(t, r.ctx, []string{home}, cli).converse(r.model.OpenAIBaseURL())
	shim := startSDKProgram(t, r.ctx, []string{home, "COPILOT_GRPC_CLI=" + cli}, path, "shim")
	got := shim.converse(r.model.OpenAIBaseURL())
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("at %d\n got %q\nwant %q", i, got[min(i, len(got)):], want[min(i, len(want)):])
		}
	}
}
