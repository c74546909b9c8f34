package fakecli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// TestMain doubles as the executable: the tests of that form start themselves.
func TestMain(m *testing.M) {
	if os.Getenv("FAKECOPILOT_TEST_EXEC") != "" {
		os.Exit(fakecli.Main(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// event is a session.event received.
type event struct {
	Type      string          `json:"type"`
	Data      json.RawMessage `json:"data"`
	Ephemeral bool            `json:"ephemeral"`
	ID        string          `json:"id"`
	ParentID  *string         `json:"parentId"`
}

func (e event) field(name string) string {
	var m map[string]any
	_ = json.Unmarshal(e.Data, &m)
	return fmt.Sprint(m[name])
}

// client is a connection to a fake that keeps what it is sent.
type client struct {
	tb testing.TB
	*rpcconn.Conn

	mu      sync.Mutex
	changed *sync.Cond
	events  []event
	seen    int // by next
	notices []string
}

func dial(tb testing.TB, rwc io.ReadWriteCloser, o rpcconn.Options) *client {
	tb.Helper()
	c := &client{tb: tb}
	c.changed = sync.NewCond(&c.mu)
	o.Event = func(body []byte) {
		var m struct{ Params struct{ Event event } }
		if err := json.Unmarshal(body, &m); err != nil {
			return // a fault under test
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, m.Params.Event)
		c.changed.Broadcast()
	}
	o.Notification = func(method string, params []byte) {
		var p struct{ Type string }
		_ = json.Unmarshal(params, &p)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.notices = append(c.notices, strings.TrimSpace(method+" "+p.Type))
	}
	c.Conn = rpcconn.New(rwc, o)
	stop := make(chan struct{})
	var wake sync.WaitGroup
	wake.Go(func() { // the end of the connection ends waiting too
		select {
		case <-c.Done():
		case <-stop:
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed.Broadcast()
	})
	tb.Cleanup(func() {
		_ = c.Close()
		c.Wait()
		close(stop)
		wake.Wait()
	})
	return c
}

// next waits for the next event of a type and returns it.
func (c *client) next(kind string) event {
	c.tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for c.seen < len(c.events) {
			c.seen++
			if e := c.events[c.seen-1]; e.Type == kind {
				return e
			}
		}
		if c.Err() != nil {
			c.tb.Fatalf("no %s before the end of the connection: %v", kind, c.Err())
		}
		c.changed.Wait()
	}
}

// all returns the events so far.
func (c *client) all() []event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// must calls a method that has to succeed.
func (c *client) must(method, params string) string {
	c.tb.Helper()
	result, err := c.Call(c.tb.Context(), method, []byte(params))
	if err != nil {
		c.tb.Fatalf("%s: %v", method, err)
	}
	return string(result)
}

// fails calls a method that has to fail with this text.
func (c *client) fails(method, params, text string) {
	c.tb.Helper()
	_, err := c.Call(c.tb.Context(), method, []byte(params))
	var e *rpcconn.Error
	if !errors.As(err, &e) || !strings.Contains(e.Message, text) {
		c.tb.Errorf("%s: %v, want %q", method, err, text)
	}
}

// start returns a fake and a client with a session "s" that has a tool.
func start(t *testing.T, s fakecli.Script) (*fakecli.CLI, *client) {
	t.Helper()
	cli := fakecli.New(fakecli.Options{Script: s})
	t.Cleanup(cli.Close)
	c := dial(t, cli.Connect(), rpcconn.Options{})
	c.must("session.create",
		`{"sessionId":"s","model":"m","requestPermission":true,"tools":[{"name":"my_tool","description":"d"}],"workingDirectory":"/w"}`)
	return cli, c
}

func toolScript() fakecli.Script {
	return fakecli.Script{Prompts: []fakecli.Prompt{{Turns: []fakecli.Turn{
		{Text: "Calling.", Tools: []fakecli.Tool{{Name: "my_tool", Arguments: json.RawMessage(`{"q":"<hi>"}`)}}},
		{Text: "Hi there"},
	}}}}
}

func (c *client) approve(id string) {
	c.tb.Helper()
	if got := c.must("session.permissions.handlePendingPermissionRequest",
		`{"sessionId":"s","requestId":"`+id+`","result":{"kind":"approve-once"}}`); got != `{"success":true}` {
		c.tb.Errorf("permission: %s", got)
	}
}

func (c *client) answerTool(id string) {
	c.tb.Helper()
	if got := c.must("session.tools.handlePendingToolCall",
		`{"sessionId":"s","requestId":"`+id+
			`","result":{"textResultForLlm":"YES","resultType":"success"}}`); got != `{"success":true}` {
		c.tb.Errorf("tool: %s", got)
	}
}

func (c *client) send(prompt string) {
	c.tb.Helper()
	c.must("session.send", `{"sessionId":"s","prompt":`+fmt.Sprintf("%q", prompt)+`}`)
}

// The events of a turn with a tool and a permission come as measured on the
// real CLI, and the oracle has exactly them.
func TestTurn(t *testing.T) {
	t.Parallel()
	cli, c := start(t, toolScript())
	c.send("hello")
	c.approve(c.next("permission.requested").field("requestId"))
	asked := c.next("external_tool.requested")
	if !strings.Contains(string(asked.Data), `"arguments":{"q":"<hi>"}`) {
		t.Errorf("arguments changed: %s", asked.Data)
	}
	c.answerTool(asked.field("requestId"))
	c.next("session.idle")

	const want = `session.start ~session.managed_settings_resolved ~pending_messages.modified ~pending_messages.modified ~session.skills_loaded
~session.mcp_servers_loaded ~session.tools_updated ~session.title_changed user.message system.message
~model.turn_started assistant.turn_start ~session.usage_info ~model.log ~model.call_start ~model.model_call_started
~assistant.streaming_delta ~assistant.message_start ~assistant.message_delta ~assistant.tool_call_delta ~assistant.usage
~model.model_call_success ~model.call_finished ~model.message assistant.message tool.execution_start
permission.requested permission.completed external_tool.requested external_tool.completed tool.execution_complete
~model.turn_ended assistant.turn_end
~model.turn_started assistant.turn_start ~session.usage_info ~model.log ~model.call_start ~model.model_call_started
~assistant.streaming_delta ~assistant.message_start ~assistant.message_delta ~assistant.streaming_delta ~assistant.message_delta ~assistant.usage
~model.model_call_success ~model.call_finished ~model.message assistant.message
~model.turn_ended assistant.turn_end ~model.messages_snapshot ~assistant.idle ~session.idle`
	var got, emitted []string
	var last *string
	for _, e := range c.all() {
		if e.Ephemeral {
			got = append(got, "~"+e.Type)
		} else {
			got = append(got, e.Type)
		}
		if (e.ParentID == nil) != (last == nil) || last != nil && *e.ParentID != *last {
			t.Errorf("%s has parent %v, want %v", e.Type, e.ParentID, last)
		}
		if !e.Ephemeral {
			last = &e.ID
		}
	}
	for _, e := range cli.Log() {
		if e.Kind == fakecli.EntryEvent {
			emitted = append(emitted, e.ID)
		}
	}
	if want := strings.Fields(want); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if ids := idsOf(c.all()); !slices.Equal(ids, emitted) {
		t.Errorf("received and logged differ: %d, %d", len(ids), len(emitted))
	}
	if n := strings.Count(c.must("session.getMessages", `{"sessionId":"s"}`), `"timestamp"`); n != 15 {
		t.Errorf("%d events in the history", n)
	}
	for _, want := range []string{"session.lifecycle session.created", "session.lifecycle session.updated"} {
		if !slices.Contains(c.notices, want) {
			t.Errorf("no %s", want)
		}
	}
}

func idsOf(events []event) (ids []string) {
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestPermissionAnswers(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string][2]string{
		`{"kind":"reject","feedback":"because"}`: {`"kind":"denied-interactively-by-user","feedback":"because"`,
			`"code":"denied"`},
		`{"kind":"user-not-available"}`: {`"denied-no-approval-rule-and-could-not-request-from-user"`,
			`"code":"denied"`},
		`{"kind":"bogus"}`: {`"kind":"bogus"`, "malformed payload"},
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			_, c := start(t, toolScript())
			c.send("hello")
			id := c.next("permission.requested").field("requestId")
			params := `{"sessionId":"s","requestId":"` + id + `","result":` + answer + `}`
			if first, second := c.must("session.permissions.handlePendingPermissionRequest",
				params), c.must("session.permissions.handlePendingPermissionRequest",
				params); first != `{"success":true}` || second != `{"success":false}` {
				t.Errorf("answers: %s, %s", first, second)
			}
			if e := c.next("permission.completed"); !strings.Contains(string(e.Data), want[0]) {
				t.Errorf("completed with %s", e.Data)
			}
			if e := c.next("tool.execution_complete"); !strings.Contains(string(e.Data), want[1]) ||
				e.field("success") != "false" {
				t.Errorf("tool ended with %s", e.Data)
			}
			c.next("session.idle")
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	_, c := start(t, fakecli.Script{})
	c.fails("session.send", `{"sessionId":"nope"}`,
		"Request session.send failed with message: Session not found for sessionId: nope")
	c.fails("session.send", `{}`, "Missing sessionId")
	c.fails("session.resume", `{"sessionId":"0"}`, "Failed to load session events: Session not found: 0")
	c.fails("session.create", `{"sessionId":"../x"}`, "invalid sessionId")
	c.fails("session.create", `{"tools":[{"name":"a b"}]}`, "Invalid tool name")
	c.fails("session.tools.handlePendingToolCall", `{"sessionId":"s"}`, "Expected string parameter 'requestId'")
	c.fails("session.mode.set", `{"sessionId":"s","mode":"bogus"}`, "unknown variant `bogus`")
	c.fails("no.such", `{}`, "Unhandled method no.such")
	if got := c.must("session.destroy", `{"sessionId":"nope"}`); got != `{"success":false}` {
		t.Errorf("destroy of nothing: %s", got)
	}
}

// A session that was prompted can be resumed after it was left; one that was
// not is gone.
func TestDestroyAndResume(t *testing.T) {
	t.Parallel()
	_, c := start(t, fakecli.Script{})
	c.must("session.create", `{"sessionId":"unused"}`)
	c.send("first")
	c.next("session.idle")
	for _, id := range []string{"s", "unused"} {
		if got := c.must("session.destroy", `{"sessionId":"`+id+`"}`); got != `{"success":true}` {
			t.Errorf("destroy: %s", got)
		}
	}
	c.fails("session.send", `{"sessionId":"s","prompt":"x"}`, "Session not found")
	c.fails("session.resume", `{"sessionId":"unused"}`, "Session not found")
	c.must("session.resume", `{"sessionId":"s"}`)
	if e := c.next("session.resume"); e.field("sessionWasActive") != "false" {
		t.Errorf("resumed with %s", e.Data)
	}
	if got := c.must("session.getMetadata", `{"sessionId":"s"}`); !strings.Contains(got, `"summary":"first"`) ||
		!strings.Contains(got, `"cwd":"/w"`) {
		t.Errorf("metadata: %s", got)
	}
	if got := c.must("session.list", `{}`); strings.Count(got, "sessionId") != 1 {
		t.Errorf("list: %s", got)
	}
	if got := c.must("session.getLastId", `{}`); got != `{"sessionId":"s"}` {
		t.Errorf("last id: %s", got)
	}
	if got := c.must("session.delete", `{"sessionId":"s"}`); got != `{"success":true}` {
		t.Errorf("delete: %s", got)
	}
	c.fails("session.resume", `{"sessionId":"s"}`, "Session not found")
}

func TestAbort(t *testing.T) {
	t.Parallel()
	_, c := start(t, toolScript())
	c.send("hello")
	id := c.next("permission.requested").field("requestId")
	c.send("queued, and dropped")
	c.must("session.abort", `{"sessionId":"s"}`)
	for _, kind := range []string{"abort", "permission.completed", "agent.interrupted", "assistant.turn_end",
		"assistant.idle"} {
		c.next(kind)
	}
	if e := c.next("session.idle"); e.field("aborted") != "true" {
		t.Errorf("idle: %s", e.Data)
	}
	if got := c.must("session.permissions.handlePendingPermissionRequest",
		`{"sessionId":"s","requestId":"`+id+`","result":{"kind":"approve-once"}}`); got != `{"success":false}` {
		t.Errorf("late answer: %s", got)
	}
	c.send("again")
	c.next("permission.requested")
}

// Prompts sent during a turn are answered in order, with one idle at the end.
func TestQueue(t *testing.T) {
	t.Parallel()
	script := toolScript()
	script.Prompts[0].Match = "slow"
	_, c := start(t, script)
	c.send("slow")
	permission := c.next("permission.requested").field("requestId")
	c.send("two")
	c.send("three")
	c.approve(permission)
	c.answerTool(c.next("external_tool.requested").field("requestId"))
	for _, want := range []string{"two", "three"} {
		if e := c.next("user.message"); e.field("content") != want || e.field("delivery") != "queued" {
			t.Errorf("prompt %q came as %s", want, e.Data)
		}
	}
	c.next("session.idle")
	idle := 0
	for _, e := range c.all() {
		if e.Type == "session.idle" {
			idle++
		}
	}
	if idle != 1 {
		t.Errorf("%d idle events, want 1", idle)
	}
}

func TestReverseRequest(t *testing.T) {
	t.Parallel()
	cli := fakecli.New(fakecli.Options{Script: fakecli.Script{Prompts: []fakecli.Prompt{{Turns: []fakecli.Turn{{
		Requests: []fakecli.Reverse{{Method: "userInput.request",
			Params: json.RawMessage(`{"question":"why?","choices":["a","b"]}`)}},
	}}}}}})
	t.Cleanup(cli.Close)
	got := make(chan string, 1)
	c := dial(t, cli.Connect(),
		rpcconn.Options{Request: func(_ context.Context, r *rpcconn.Request) (json.RawMessage, error) {
			got <- r.Method + string(r.Params)
			return json.RawMessage(`{"answer":"a","wasFreeform":false}`), nil
		}})
	c.must("session.create", `{"sessionId":"s"}`)
	c.send("x")
	if got, want := <-got, `userInput.request{"sessionId":"s","question":"why?","choices":["a","b"]}`; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	c.next("user_input.requested")
	c.next("user_input.completed")
	c.next("session.idle")
}

// Copies come late and under the ids they had; without them the stream is
// complete and in order.
func TestCopies(t *testing.T) {
	t.Parallel()
	for name, copies := range map[string]fakecli.Copies{"in stream": {After: 700}, "some": {After: 50, Every: 3},
		"past idle": {After: 5000, Every: 2, PastIdle: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 2000
			cli, c := start(t,
				fakecli.Script{Prompts: []fakecli.Prompt{{Match: "burst",
					Turns: []fakecli.Turn{{Deltas: &fakecli.Deltas{Count: n, Copies: &copies}}}}}})
			c.send("burst")
			c.next("session.idle")
			c.send("other") // what was due past idle has come by then
			c.next("session.idle")
			var want []string
			copied := 0
			for _, e := range cli.Log() {
				switch e.Kind {
				case fakecli.EntryEvent:
					want = append(want, e.ID)
				case fakecli.EntryCopy:
					copied++
				}
			}
			all := idsOf(c.all())
			known := map[string]bool{}
			got := slices.DeleteFunc(slices.Clone(all),
				func(id string) bool { was := known[id]; known[id] = true; return was })
			if !slices.Equal(got, want) {
				t.Errorf("without copies %d events, want %d in order", len(got), len(want))
			}
			if every := max(1, copies.Every); copied == 0 || copied < n/every || len(all) != len(want)+copied {
				t.Errorf("%d copies of %d events sent, %d received", copied, len(want), len(all)-len(want))
			}
		})
	}
}

// A flat-out burst arrives whole, in order, at any speed of the reader.
func TestBurst(t *testing.T) {
	t.Parallel()
	cli := fakecli.New(fakecli.Options{Backlog: 100_000,
		Script: fakecli.Script{Prompts: []fakecli.Prompt{{Turns: []fakecli.Turn{{Deltas: &fakecli.Deltas{Count: 10_000,
			Size: 10}}}}}}})
	t.Cleanup(cli.Close)
	c := dial(t, cli.Connect(), rpcconn.Options{})
	c.must("session.create", `{"sessionId":"s"}`)
	c.send("x")
	if e := c.next("assistant.message"); len(e.field("content")) != 100_000 {
		t.Errorf("%d bytes of text", len(e.field("content")))
	}
	c.next("session.idle")
}

// Two connections see the same events, share their tools, and only the last
// one to leave ends the session.
func TestTwoConnections(t *testing.T) {
	t.Parallel()
	cli, c := start(t, toolScript())
	d := dial(t, cli.Connect(), rpcconn.Options{})
	d.fails("session.resume", `{"sessionId":"s","tools":[{"name":"my_tool"}]}`, "External tool name clash: my_tool")
	d.must("session.resume", `{"sessionId":"s","tools":[{"name":"other"}],"disableResume":true}`)
	c.send("hello")
	d.approve(d.next("permission.requested").field("requestId"))
	d.answerTool(d.next("external_tool.requested").field("requestId"))
	c.next("session.idle")
	d.next("session.idle")
	_ = c.Close()
	c.Wait()
	d.next("session.tools_updated")
	d.must("session.getMessages", `{"sessionId":"s"}`)
}

// Events that ask for something are answered by their own methods, once.
func TestAsks(t *testing.T) {
	t.Parallel()
	for event, how := range map[string][2]string{
		"elicitation.requested": {"session.ui.handlePendingElicitation", "elicitation.completed"},
		"command.execute":       {"session.commands.handlePendingCommand", "command.completed"},
		"mcp.oauth_required":    {"session.mcp.oauth.handlePendingRequest", "mcp.oauth_completed"},
	} {
		t.Run(event, func(t *testing.T) {
			t.Parallel()
			_, c := start(t,
				fakecli.Script{Prompts: []fakecli.Prompt{{Turns: []fakecli.Turn{{Asks: []fakecli.Event{{Type: event,
					Data: json.RawMessage(`{"message":"m"}`)}, {Type: event}}}}}}})
			c.send("x")
			for range 2 {
				e := c.next(event)
				if !e.Ephemeral {
					t.Error("not ephemeral")
				}
				params := `{"sessionId":"s","requestId":"` + e.field("requestId") + `","result":{}}`
				if got := c.must("session.tools.handlePendingToolCall", params); got != `{"success":false}` {
					t.Errorf("answer by the wrong method: %s", got)
				}
				if first, second := c.must(how[0], params), c.must(how[0], params); first != `{"success":true}` ||
					second != `{"success":false}` {
					t.Errorf("answers: %s, %s", first, second)
				}
				c.next(how[1])
			}
			c.next("session.idle")
		})
	}
}
