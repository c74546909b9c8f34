package rpcconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

func echoRequest(_ context.Context, r *Request) (json.RawMessage, error) { return r.Params, nil }

// A request reaches its handler, and a result the peer, byte for byte.
func TestRequestBytesAreExact(t *testing.T) {
	t.Parallel()
	_, p := start(t, Options{Request: echoRequest})
	for _, id := range []string{`1`, `0`, `-7`, `"a\u0062\""`, `1.50`, `18446744073709551616`} {
		for _, params := range []string{`{"z":1,"a":"<&>\u2028","n":12345678901234567890123}`, `[ 1 ]`, `null`, `"x"`} {
			p.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"m","params":` + params + `}`)
			if got, want := p.receive(), `{"jsonrpc":"2.0","id":`+id+`,"result":`+params+`}`; got != want {
				t.Errorf("wrote %q, want %q", got, want)
			}
		}
	}
	p.send(`{"method":"m","id":1}`)
	if got, want := p.receive(), `{"jsonrpc":"2.0","id":1,"result":null}`; got != want {
		t.Errorf("without params: %q, want %q", got, want)
	}
}

func TestRequestErrors(t *testing.T) {
	t.Parallel()
	coded := &Error{Code: -32042, Message: `not "now"`, Data: json.RawMessage(`{"z":1,"a":2}`)}
	const wantCoded = `{"code":-32042,"message":"not \"now\"","data":{"z":1,"a":2}}`
	for name, tc := range map[string]struct {
		handler func(context.Context, *Request) (json.RawMessage, error)
		want    string
	}{
		"typed": {func(context.Context, *Request) (json.RawMessage, error) { return nil, coded }, wantCoded},
		"wrapped": {func(context.Context, *Request) (json.RawMessage,
			error) {
			return nil, fmt.Errorf("hook: %w", coded)
		}, wantCoded},
		"plain": {func(context.Context, *Request) (json.RawMessage, error) { return nil, errors.New("boom") },
			`{"code":-32603,"message":"boom"}`},
		"bad result": {func(context.Context, *Request) (json.RawMessage, error) { return json.RawMessage(`{}}`), nil },
			`{"code":-32603,"message":"result: not a single JSON value"}`},
		"nobody": {nil, `{"code":-32601,"message":"Unhandled method m"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p := start(t, Options{Request: tc.handler})
			p.send(`{"id":"x","method":"m"}`)
			if got, want := p.receive(), `{"jsonrpc":"2.0","id":"x","error":`+tc.want+`}`; got != want {
				t.Errorf("wrote %q, want %q", got, want)
			}
		})
	}
}

// A handler that calls back on its own connection gets its answer.
func TestHandlerCallsBack(t *testing.T) {
	t.Parallel()
	var c *Conn
	ready := make(chan struct{})
	c, p := start(t,
		Options{MaxRequestWorkers: 1, Request: func(ctx context.Context, r *Request) (json.RawMessage, error) {
			<-ready
			return c.Call(ctx, "back", r.Params)
		}})
	close(ready)
	p.send(`{"id":5,"method":"m","params":{"a":1}}`)
	id, body := p.receiveCall()
	if !strings.Contains(body, `"method":"back","params":{"a":1}`) {
		t.Fatalf("wrote %q", body)
	}
	p.answer(id, `"echo"`)
	if got := p.receive(); got != `{"jsonrpc":"2.0","id":5,"result":"echo"}` {
		t.Errorf("wrote %q", got)
	}
}

func TestRequestQueueFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c, p := start(t,
			Options{MaxRequestWorkers: 2, MaxRequestQueue: 1,
				Request: func(context.Context, *Request) (json.RawMessage, error) {
					<-release
					return nil, nil
				}})
		for id := range 4 {
			p.send(fmt.Sprintf(`{"id":%d,"method":"m"}`, id))
		}
		want := `{"jsonrpc":"2.0","id":3,"error":{"code":-32050,"message":"too many requests: 2 served, 1 waiting","data":{"reason":"REQUEST_QUEUE_FULL"}}}`
		if got := p.receive(); got != want {
			t.Errorf("wrote %q, want %q", got, want)
		}
		if s := c.Stats(); s.RefusedRequests != 1 || s.Serving != 3 {
			t.Errorf("stats: %+v", s)
		}
		close(release)
		for range 3 {
			if got := p.receive(); !strings.Contains(got, `"result":null`) {
				t.Errorf("wrote %q", got)
			}
		}
		synctest.Wait()
		if n := c.Stats().Serving; n != 0 {
			t.Errorf("%d requests left", n)
		}
		p.send(`{"id":9,"method":"m"}`)
		if got := p.receive(); got != `{"jsonrpc":"2.0","id":9,"result":null}` {
			t.Errorf("after the queue emptied: %q", got)
		}
	})
}

// A peer that asks and asks and reads nothing ends the connection, in bounds.
func TestPeerStalled(t *testing.T) {
	t.Parallel()
	c, p := start(t, Options{MaxRequestWorkers: 1, MaxRequestQueue: -1, MaxOutbound: 2000})
	go func() {
		for {
			if _, err := p.conn.Write(framed(`{"id":1,"method":"m"}`)); err != nil {
				return
			}
		}
	}()
	<-c.Done()
	if err := c.Err(); !errors.Is(err, ErrPeerStalled) || !errors.Is(err, ErrOutboundFull) {
		t.Errorf("ended with %v", err)
	}
}

// An answer waits for room instead of being lost, and one that can never fit
// becomes an error.
func TestAnswerWaitsForRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		size := map[string]int{"a": 700, "b": 700, "huge": 5000}
		c, p := start(t,
			Options{MaxOutbound: 1000, Request: func(_ context.Context, r *Request) (json.RawMessage, error) {
				return json.RawMessage(`"` + strings.Repeat("x", size[r.Method]) + `"`), nil
			}})
		p.send(`{"id":1,"method":"a"}`)
		synctest.Wait()
		p.send(`{"id":2,"method":"b"}`)
		p.send(`{"id":3,"method":"huge"}`)
		synctest.Wait()
		if s := c.Stats(); s.Serving != 1 || s.QueuedBytes > 1000 {
			t.Errorf("before reading: %+v", s)
		}
		all := p.receive() + p.receive() + p.receive()
		for _, want := range []string{`"id":1,"result"`, `"id":2,"result"`,
			`"id":3,"error":{"code":-32603,"message":"answer of 5`} {
			if !strings.Contains(all, want) {
				t.Errorf("no %s among the answers", want)
			}
		}
	})
}

// Requests of a lane are served one by one in order; other lanes do not wait.
func TestLanes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		release := make(chan struct{})
		_, p := start(t, Options{
			Arrive: func(r *Request) string {
				r.Mark = "mark of " + r.ID
				lane, _, _ := strings.Cut(r.Method, ".")
				return strings.TrimPrefix(lane, "free")
			},
			Request: func(_ context.Context, r *Request) (json.RawMessage, error) {
				if r.Method == "a.0" {
					<-release
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, r.Method)
				if r.Mark != "mark of "+r.ID {
					t.Errorf("mark %v", r.Mark)
				}
				return nil, nil
			},
		})
		go func() { _, _ = readAll(p.conn, 1000) }()
		for _, method := range []string{"a.0", "a.1", "b.0", "a.2", "free.0"} {
			p.send(`{"id":1,"method":"` + method + `"}`)
			synctest.Wait()
		}
		close(release)
		synctest.Wait()
		if want := []string{"b.0", "free.0", "a.0", "a.1", "a.2"}; !equal(order, want) {
			t.Errorf("served %q, want %q", order, want)
		}
	})
}

// The end of the connection ends the handlers.
func TestHandlersEndWithTheConnection(t *testing.T) {
	t.Parallel()
	cause := make(chan error, 1)
	started := make(chan struct{})
	c, p := start(t, Options{Request: func(ctx context.Context, _ *Request) (json.RawMessage, error) {
		close(started)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil, nil
	}})
	p.send(`{"id":5,"method":"m"}`)
	<-started
	_ = p.conn.Close()
	if err := <-cause; !errors.Is(err, ErrPeerClosed) {
		t.Errorf("handler's context ended with %v", err)
	}
	c.Wait()
	if n := c.Stats().DroppedAnswers; n != 1 {
		t.Errorf("%d dropped answers, want 1", n)
	}
}
