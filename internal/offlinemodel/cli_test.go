package offlinemodel

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
	"sync"
	"testing"
	"time"
)

// cliTimeout bounds every wait for the real CLI. The first start unpacks it.
const cliTimeout = 90 * time.Second

// cli is a real Copilot CLI over stdio, spoken to in bare JSON-RPC: just enough
// to see that it understands the endpoint.
type cli struct {
	t     *testing.T
	dir   string
	stdin io.WriteCloser

	mu      sync.Mutex
	nextID  int
	replies map[int]chan rpcMessage
	events  chan event
	// onRequest answers requests of the CLI.
	onRequest func(method string, params json.RawMessage) any
}

type rpcMessage struct {
	ID     *int            `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

type event struct {
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
}

// startCLI spawns the binary that COPILOT_CLI_PATH names, with a separate home.
func startCLI(t *testing.T, env ...string) *cli {
	t.Helper()
	binary := os.Getenv("COPILOT_CLI_PATH")
	if binary == "" {
		t.Skip("NOT RUN: COPILOT_CLI_PATH does not name a Copilot CLI")
	}
	dir := t.TempDir()
	command := exec.Command(binary, "--headless", "--no-auto-update", "--no-auto-login", "--stdio")
	command.Dir = dir
	command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "COPILOT_HOME=" + dir, "LANG=C.UTF-8"},
		env...)
	// The unpacked program may be shared between runs; state may not.
	if cache := os.Getenv("COPILOT_PKG_CACHE_HOME"); cache != "" {
		command.Env = append(command.Env, "COPILOT_PKG_CACHE_HOME="+cache)
	}
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	c := &cli{t: t, dir: dir, stdin: stdin, replies: map[int]chan rpcMessage{}, events: make(chan event, 100_000)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.read(bufio.NewReader(stdout))
	}()
	t.Cleanup(func() {
		_ = stdin.Close() // this ends the CLI
		force := time.AfterFunc(10*time.Second, func() { _ = command.Process.Kill() })
		defer force.Stop()
		<-read
		_ = command.Wait()
	})
	c.call("connect", map[string]any{})
	return c
}

// read takes frames apart until the CLI closes its output.
func (c *cli) read(from *bufio.Reader) {
	defer close(c.events)
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
		var message rpcMessage
		if json.Unmarshal(frame, &message) != nil {
			return
		}
		c.handle(message)
	}
}

func (c *cli) handle(message rpcMessage) {
	switch {
	case message.Method == "session.event":
		var params struct {
			Event event `json:"event"`
		}
		if json.Unmarshal(message.Params, &params) == nil {
			c.events <- params.Event
		}
	case message.Method != "" && message.ID != nil:
		var result any = map[string]any{}
		if c.onRequest != nil {
			result = c.onRequest(message.Method, message.Params)
		}
		c.send(map[string]any{"jsonrpc": "2.0", "id": *message.ID, "result": result})
	case message.ID != nil:
		c.mu.Lock()
		defer c.mu.Unlock()
		if reply := c.replies[*message.ID]; reply != nil {
			reply <- message
		}
	}
}

func (c *cli) send(message any) {
	text, err := json.Marshal(message)
	if err != nil {
		c.t.Error(err)
		return
	}
	if _, err := fmt.Fprintf(c.stdin, "Content-Length: %d\r\n\r\n%s", len(text), text); err != nil {
		c.t.Error(err)
	}
}

// call makes a request and returns its result.
func (c *cli) call(method string, params any) map[string]any {
	c.t.Helper()
	reply := make(chan rpcMessage, 1)
	c.mu.Lock()
	c.nextID++
	id := c.nextID
	c.replies[id] = reply
	c.mu.Unlock()
	c.send(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	select {
	case message := <-reply:
		if message.Error != nil {
			c.t.Fatalf("%s: %s", method, message.Error)
		}
		var result map[string]any
		if err := json.Unmarshal(message.Result, &result); err != nil {
			c.t.Fatalf("%s: result %s: %v", method, message.Result, err)
		}
		return result
	case <-time.After(cliTimeout):
		c.t.Fatalf("%s: no reply", method)
		return nil
	}
}

// session creates a session and returns its id.
func (c *cli) session(params map[string]any) string {
	c.t.Helper()
	params["workingDirectory"] = c.dir
	params["requestPermission"] = true
	if _, set := params["streaming"]; !set {
		params["streaming"] = true
	}
	id, _ := c.call("session.create", params)["sessionId"].(string)
	return id
}

// turn sends a prompt and returns the events up to the turn's end.
func (c *cli) turn(session string, params map[string]any) []event {
	c.t.Helper()
	params["sessionId"] = session
	c.call("session.send", params)
	return c.finish(session)
}

// finish returns the events up to the turn's end. On the way it grants permissions and answers calls of the tool
// get_weather.
func (c *cli) finish(session string) []event {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), cliTimeout)
	defer cancel()
	var events []event
	for {
		select {
		case e, open := <-c.events:
			if !open {
				c.t.Fatal("the CLI ended in the middle of a turn")
			}
			events = append(events, e)
			c.serve(session, e)
			if e.Type == "session.idle" {
				return events
			}
		case <-ctx.Done():
			c.t.Fatalf("no end of the turn; events: %s", types(events))
		}
	}
}

// serve answers what an event asks for.
func (c *cli) serve(session string, e event) {
	id, _ := e.get("requestId").(string)
	switch e.Type {
	case "permission.requested":
		c.call("session.permissions.handlePendingPermissionRequest", map[string]any{
			"sessionId": session, "requestId": id, "result": map[string]any{"kind": "approve-once"},
		})
	case "external_tool.requested":
		c.call("session.tools.handlePendingToolCall", map[string]any{
			"sessionId": session, "requestId": id,
			"result": map[string]any{"textResultForLlm": "sunny in " + fmt.Sprint(e.get("arguments.city")),
				"resultType": "success"},
		})
	}
}

// get reads a member of the event's data by its path.
func (e event) get(path string) any {
	var value any
	if json.Unmarshal(e.Data, &value) != nil {
		return nil
	}
	return lookup(value, path)
}

// joined puts the text member of all events of a type together.
func joined(events []event, kind, member string) string {
	text := ""
	for _, e := range events {
		if e.Type == kind {
			part, _ := e.get(member).(string)
			text += part
		}
	}
	return text
}

func types(events []event) []string {
	names := make([]string, len(events))
	for i, e := range events {
		names[i] = e.Type
	}
	return names
}
