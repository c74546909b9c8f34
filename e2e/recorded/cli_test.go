// Package recorded compares the simulator's model of the CLI with the real one.
package recorded

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/sim"
)

// recorder drives one session, s1, of the real CLI and records what both say.
type recorder struct {
	t        *testing.T
	dir      string
	unpacked string // the folder of the CLI's files
	model    *offlinemodel.Scope
	plans    []sim.Plan

	command *exec.Cmd
	stdin   io.WriteCloser
	read    chan struct{} // closed when the output of the process has ended

	mu      sync.Mutex
	changed chan struct{} // closed and replaced with each line
	lines   []sim.Line
	calls   int            // also the id of the last one
	lost    int            // of these, whose replies do not come
	taken   map[string]int // messages of a kind that the scenario has waited for
}

type object = map[string]any

// patience bounds every wait.
const patience = 90 * time.Second

// message is what the recorder looks at in a message.
type message struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Event struct {
			ID, Type string
			Data     object
		}
	}
	Result object
	Error  json.RawMessage
}

// kind is the type of an event, the method of a request, or the id of a reply.
func (m message) kind() string {
	switch {
	case m.Method == "session.event":
		return m.Params.Event.Type
	case m.Method != "":
		return m.Method
	}
	return "reply " + string(m.ID)
}

// rule has the model answer its next request: with a text ("A0", or "C" if it goes on with the calls of another process), with an error ("!"), or with calls of tools, one letter each
// (see package sim). The reply waits for release if it begins with "~".
func rule(n int, reply string) offlinemodel.Rule {
	r := offlinemodel.Rule{Times: 1}
	if held, is := strings.CutPrefix(reply, "~"); is {
		r.WaitFor, reply = fmt.Sprint(n), held
	}
	switch {
	case reply == "!":
		r.Error = &offlinemodel.Failure{Status: 400, Message: "broken"}
		return r
	case strings.ContainsAny(reply, "AC"):
		r.Reply = []offlinemodel.Step{{Text: reply}}
		return r
	}
	r.Reply = []offlinemodel.Step{{Text: "calling"}}
	for i, kind := range reply {
		id := fmt.Sprintf("call-%d-%d", n, i)
		name, arguments := string(kind), object{}
		if kind == 'q' {
			name, arguments = "ask_user", object{"question": id}
		}
		r.Reply = append(r.Reply, offlinemodel.Step{ToolCall: &offlinemodel.ToolCall{Name: name, Arguments: arguments, ID: id}})
	}
	return r
}

// record begins a recording, in which the agent makes of prompts what the plans say, and its requests get the replies.
func record(t *testing.T, server *offlinemodel.Server, unpacked string, plans []sim.Plan, replies ...string) *recorder {
	t.Helper()
	var rules []offlinemodel.Rule
	for n, reply := range replies {
		rules = append(rules, rule(n, reply))
	}
	scope, err := server.NewScope(t.Name(), &offlinemodel.Script{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(scope.Close)
	r := &recorder{t: t, dir: t.TempDir(), unpacked: unpacked, model: scope, plans: plans, changed: make(chan struct{}), taken: map[string]int{}}
	t.Cleanup(func() { r.end(sim.Killed) })
	r.start()
	return r
}

// modelled is the version of the CLI that the model is of.
const modelled = "1.0.102"

// start starts a process. Its connection is not recorded.
func (r *recorder) start() {
	r.t.Helper()
	r.command = exec.Command(os.Getenv(cliEnv), "--headless", "--no-auto-update", "--no-auto-login", "--stdio")
	r.command.Dir = r.dir
	r.command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "COPILOT_HOME=" + r.dir, "LANG=C.UTF-8", "COPILOT_PKG_CACHE_HOME=" + r.unpacked,
	}
	stdout, err := r.command.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if r.stdin, err = r.command.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	if err := r.command.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.read = make(chan struct{})
	go func() {
		defer close(r.read)
		r.listen(bufio.NewReader(stdout))
	}()
	before := len(r.lines)
	if version := r.call("connect", object{}).Result["version"]; version != modelled {
		r.t.Skipf("the model is that of CLI %s, not %v", modelled, version)
	}
	r.lines = r.lines[:before]
}

// end ends the process, which is killed, or whose input is closed.
func (r *recorder) end(how sim.From) {
	if r.command == nil {
		return
	}
	if how == sim.Killed {
		_ = r.command.Process.Kill()
	}
	_ = r.stdin.Close()
	<-r.read
	_ = r.command.Wait()
	r.lost = r.calls
	r.command = nil
	r.add(how, "")
}

// listen records what the process says.
func (r *recorder) listen(from *bufio.Reader) {
	for {
		header, err := textproto.NewReader(from).ReadMIMEHeader()
		if err != nil {
			return
		}
		length, err := strconv.Atoi(header.Get("content-length"))
		if err != nil {
			return
		}
		frame := make([]byte, length)
		if _, err := io.ReadFull(from, frame); err != nil {
			return
		}
		r.add(sim.CLI, string(frame))
	}
}

func (r *recorder) add(from sim.From, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, sim.Line{From: from, Text: text})
	close(r.changed)
	r.changed = make(chan struct{})
}

// write sends the process a message.
func (r *recorder) write(m object) {
	r.t.Helper()
	m["jsonrpc"] = "2.0"
	text, err := json.Marshal(m)
	if err != nil {
		r.t.Fatal(err)
	}
	r.add(sim.Client, string(text))
	if _, err := fmt.Fprintf(r.stdin, "Content-Length: %d\r\n\r\n%s", len(text), text); err != nil {
		r.t.Fatal(err)
	}
}

// begin makes a call, and does not wait for its reply.
func (r *recorder) begin(method string, params object) string {
	r.t.Helper()
	r.calls++
	if strings.HasPrefix(method, "session.") {
		params["sessionId"] = "s1"
	}
	r.write(object{"id": r.calls, "method": method, "params": params})
	return fmt.Sprintf("reply %d", r.calls)
}

// call makes a call.
func (r *recorder) call(method string, params object) message {
	r.t.Helper()
	return r.await(r.begin(method, params))
}

// await waits for the next message of a kind.
func (r *recorder) await(kind string) message {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for {
		r.mu.Lock()
		changed, found := r.changed, 0
		for _, l := range r.lines {
			var m message
			if l.From != sim.CLI || json.Unmarshal([]byte(l.Text), &m) != nil || m.kind() != kind {
				continue
			}
			if found++; found > r.taken[kind] {
				r.taken[kind]++
				r.mu.Unlock()
				return m
			}
		}
		r.mu.Unlock()
		select {
		case <-changed:
		case <-r.read:
			r.t.Fatalf("the CLI has ended without %s", kind)
		case <-ctx.Done():
			r.t.Fatalf("no %s:%s", kind, r.show())
		}
	}
}

func (r *recorder) show() (all string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, l := range r.lines {
		all += fmt.Sprintf("\n%d %c %.300s", n, l.From, l.Text)
	}
	return all
}
