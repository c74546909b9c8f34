package fakecli_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

func faulty(method string, f fakecli.Fault) fakecli.Script {
	return fakecli.Script{Faults: []fakecli.MethodFault{{Method: method, After: 1, Times: 1, Fault: f}}}
}

// Each fault does to the connection what it says, on the second ping.
func TestFaults(t *testing.T) {
	t.Parallel()
	for kind, tc := range map[string]struct {
		fault fakecli.Fault
		call  error // what the struck call ends with
		conn  error // and the connection
		after func(*testing.T, *fakecli.CLI, *client)
	}{
		fakecli.FaultHang:  {call: context.DeadlineExceeded},
		fakecli.FaultDelay: {fault: fakecli.Fault{DelayMS: 1}},
		fakecli.FaultDuplicateReply: {after: func(t *testing.T, _ *fakecli.CLI, c *client) {
			if n := c.Stats().UnknownReplies; n != 1 {
				t.Errorf("%d replies to nothing", n)
			}
		}},
		fakecli.FaultUnknownReply: {after: func(t *testing.T, _ *fakecli.CLI, c *client) {
			if n := c.Stats().UnknownReplies; n != 1 {
				t.Errorf("%d replies to nothing", n)
			}
		}},
		fakecli.FaultBadJSON: {call: context.DeadlineExceeded, after: func(t *testing.T, _ *fakecli.CLI, c *client) {
			if n := c.Stats().Malformed; n != 1 {
				t.Errorf("%d malformed messages", n)
			}
		}},
		fakecli.FaultHugeFrame: {fault: fakecli.Fault{Bytes: 200_000}, call: rpcconn.ErrFrameTooLarge,
			conn: rpcconn.ErrFrameTooLarge},
		fakecli.FaultHugeHeader: {fault: fakecli.Fault{Bytes: 1 << 62}, call: rpcconn.ErrFrameTooLarge,
			conn: rpcconn.ErrFrameTooLarge},
		fakecli.FaultGarbage:   {call: rpcconn.ErrBadFrame, conn: rpcconn.ErrBadFrame},
		fakecli.FaultHalfFrame: {call: rpcconn.ErrTruncated, conn: rpcconn.ErrTruncated},
		fakecli.FaultClose:     {call: rpcconn.ErrPeerClosed, conn: rpcconn.ErrPeerClosed},
		fakecli.FaultExit: {fault: fakecli.Fault{ExitCode: 3}, call: rpcconn.ErrPeerClosed, conn: rpcconn.ErrPeerClosed,
			after: func(t *testing.T, cli *fakecli.CLI, _ *client) {
				if code := cli.ExitCode(); code != 3 {
					t.Errorf("exit code %d", code)
				}
			}},
		fakecli.FaultStopReading: {call: context.DeadlineExceeded},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			tc.fault.Kind = kind
			cli := fakecli.New(fakecli.Options{Script: faulty("ping", tc.fault)})
			t.Cleanup(cli.Close)
			c := dial(t, cli.Connect(), rpcconn.Options{MaxFrame: 100_000})
			c.must("ping", `{}`)
			ctx := t.Context()
			if errors.Is(tc.call, context.DeadlineExceeded) {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
			}
			if _, err := c.Call(ctx, "ping", []byte(`{}`)); !errors.Is(err, tc.call) {
				t.Errorf("struck call: %v, want %v", err, tc.call)
			}
			if tc.conn == nil && kind != fakecli.FaultStopReading {
				c.must("ping", `{}`)
			}
			if err := c.Err(); !errors.Is(err, tc.conn) {
				t.Errorf("connection: %v, want %v", err, tc.conn)
			}
			if !slices.ContainsFunc(cli.Log(),
				func(e fakecli.Entry) bool { return e.Kind == fakecli.EntryFault && e.Type == kind }) {
				t.Error("no such fault in the log")
			}
			if tc.after != nil {
				tc.after(t, cli, c)
			}
		})
	}
}

func TestErrorFault(t *testing.T) {
	t.Parallel()
	cli := fakecli.New(fakecli.Options{Script: faulty("",
		fakecli.Fault{Kind: fakecli.FaultError, Code: -32042, Message: "no", Data: json.RawMessage(`{"z":1}`)})})
	t.Cleanup(cli.Close)
	c := dial(t, cli.Connect(), rpcconn.Options{})
	c.must("ping", `{}`)
	_, err := c.Call(t.Context(), "ping", nil)
	var e *rpcconn.Error
	if !errors.As(err, &e) || e.Code != -32042 || e.Message != "no" || string(e.Data) != `{"z":1}` {
		t.Errorf("got %v", err)
	}
	c.must("ping", `{}`)
}

// Faults of a turn strike where they should, and a failing model says so.
func TestTurnFaults(t *testing.T) {
	t.Parallel()
	exit := func(at string) []fakecli.Turn {
		return []fakecli.Turn{{Deltas: &fakecli.Deltas{Count: 10}, Tools: []fakecli.Tool{{Name: "my_tool"}},
			Fault: &fakecli.Fault{Kind: fakecli.FaultClose, At: at}}}
	}
	for at, want := range map[string]string{fakecli.AtStart: "model.model_call_started",
		fakecli.AtStream: "assistant.message_delta"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			_, c := start(t, fakecli.Script{Prompts: []fakecli.Prompt{{Turns: exit(at)}}})
			c.send("x")
			<-c.Done()
			all := c.all()
			if len(all) == 0 || all[len(all)-1].Type != want {
				t.Errorf("last of %d events is not %s", len(all), want)
			}
		})
	}
	t.Run("model error", func(t *testing.T) {
		t.Parallel()
		_, c := start(t,
			fakecli.Script{Prompts: []fakecli.Prompt{{Times: 1,
				Turns: []fakecli.Turn{{Error: &fakecli.ModelError{Type: "query", Message: "400 fake",
					StatusCode: 400}}}}}})
		c.send("x")
		if e := c.next("session.error"); string(e.Data) != `{"errorType":"query","message":"400 fake","statusCode":400}` {
			t.Errorf("error is %s", e.Data)
		}
		c.next("session.idle")
		c.send("y")
		if e := c.next("assistant.message"); e.field("content") != "You said: y" {
			t.Errorf("after the error: %s", e.Data)
		}
	})
	t.Run("hang and abort", func(t *testing.T) {
		t.Parallel()
		_, c := start(t, fakecli.Script{Prompts: []fakecli.Prompt{{Turns: []fakecli.Turn{{Hang: true}}}}})
		c.send("x")
		c.next("model.model_call_started")
		c.must("session.abort", `{"sessionId":"s"}`)
		c.next("session.idle")
	})
}

// A pending question of a process that died can be answered in the next one, if the client wants to continue, and only
// then.
func TestContinuePendingWork(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tool, resume bool
	}{"permission": {false, true}, "tool": {true, true}, "not wanted": {true, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			const session = `"sessionId":"s","requestPermission":true,"tools":[{"name":"my_tool"}]`
			first := fakecli.New(fakecli.Options{Script: toolScript(), Home: home})
			t.Cleanup(first.Close)
			c := dial(t, first.Connect(), rpcconn.Options{})
			c.must("session.create", `{`+session+`}`)
			c.send("hello")
			id := c.next("permission.requested").field("requestId")
			if tc.tool {
				c.approve(id)
				id = c.next("external_tool.requested").field("requestId")
			}
			first.Kill()
			<-c.Done()

			second := fakecli.New(fakecli.Options{Script: toolScript(), Home: home})
			t.Cleanup(second.Close)
			d := dial(t, second.Connect(), rpcconn.Options{})
			if !tc.resume {
				d.must("session.resume", `{`+session+`}`)
				if got := d.must("session.tools.handlePendingToolCall",
					`{"sessionId":"s","requestId":"`+id+`","result":"x"}`); got != `{"success":false}` {
					t.Errorf("answer nobody waits for: %s", got)
				}
				return
			}
			d.must("session.resume", `{`+session+`,"continuePendingWork":true}`)
			if tc.tool {
				if got := d.must("session.tools.listPendingRequests", `{"sessionId":"s"}`); !strings.Contains(got, id) {
					t.Errorf("pending: %s", got)
				}
			} else {
				if got := d.must("session.permissions.pendingRequests", `{"sessionId":"s"}`); !strings.Contains(got,
					id) {
					t.Errorf("pending: %s", got)
				}
				d.approve(id)
				id = d.next("external_tool.requested").field("requestId")
			}
			d.answerTool(id)
			if e := d.next("tool.execution_complete"); e.field("success") != "true" {
				t.Errorf("tool ended with %s", e.Data)
			}
			d.next("assistant.message")
			d.next("session.idle")
			if got := d.must("session.getMessages", `{"sessionId":"s"}`); strings.Count(got, `"user.message"`) != 1 {
				t.Errorf("history: %s", got)
			}
		})
	}
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	cli, c := start(t, fakecli.Script{})
	if got := c.must("runtime.shutdown", `{}`); got != "null" {
		t.Errorf("shutdown: %s", got)
	}
	c.next("session.shutdown")
	<-cli.Exited()
	<-c.Done()
	if code := cli.ExitCode(); code != 0 || !errors.Is(c.Err(), rpcconn.ErrPeerClosed) {
		t.Errorf("exit code %d, connection %v", code, c.Err())
	}
}

func TestLoadScript(t *testing.T) {
	t.Parallel()
	s, err := fakecli.LoadScript(`{"version":"1.0.81","prompts":[{"match":"a","turns":[{"deltas":{"count":3,"copies":{"after":2}}}]}],"faults":[{"method":"ping","kind":"hang"}]}`)
	if err != nil || s.Version != "1.0.81" || s.Prompts[0].Turns[0].Deltas.Copies.After != 2 ||
		s.Faults[0].Kind != fakecli.FaultHang {
		t.Errorf("got %+v, %v", s, err)
	}
	for _, bad := range []string{
		`{"fault":1}`, `{`, "/no/such/file", `{"faults":[{"kind":"hangs"}]}`,
		`{"prompts":[{"turns":[{"fault":{"kind":"hang"}}]}]}`,
		`{"prompts":[{"turns":[{"fault":{"kind":"exit","at":"noon"}}]}]}`,
		`{"prompts":[{"turns":[{"asks":[{"type":"user.message"}]}]}]}`,
	} {
		if _, err := fakecli.LoadScript(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
