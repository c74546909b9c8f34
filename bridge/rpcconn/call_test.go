package rpcconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

type outcomeOf struct {
	result json.RawMessage
	err    error
}

// call makes a call in the background.
func call(ctx context.Context, c *Conn, method, params string, opts ...CallOption) <-chan outcomeOf {
	done := make(chan outcomeOf, 1)
	go func() {
		result, err := c.Call(ctx, method, []byte(params), opts...)
		done <- outcomeOf{result, err}
	}()
	return done
}

func TestCallBytesAreExact(t *testing.T) {
	t.Parallel()
	for _, params := range []string{
		`{}`, `[1,2]`, `null`,
		`{"z":1,"a":2,"z2":{"y":1,"b":[]}}`,
		`{"html":"<b>&amp;</b>","u":"\u2028é\ud83d\ude00"}`,
		`{"big":12345678901234567890123,"exp":1.50e+10,"neg":-0}`,
		` { "spaced" : [ 1 , 2 ] } `,
		`{"long":"` + strings.Repeat("x", 200_000) + `"}`,
	} {
		t.Run(params[:min(len(params), 20)], func(t *testing.T) {
			t.Parallel()
			c, p := start(t, Options{})
			done := call(t.Context(), c, "m", params)
			id, body := p.receiveCall()
			if want := `{"jsonrpc":"2.0","id":` + strconv.Itoa(id) + `,"method":"m","params":` + params +
				`}`; body != want {
				t.Errorf("wrote %.300q, want %.300q", body, want)
			}
			p.answer(id, params)
			got := <-done
			if want := strings.Trim(params, " "); got.err != nil || string(got.result) != want {
				t.Errorf("result %.300q, %v; want %.300q", got.result, got.err, want)
			}
		})
	}
}

func TestCallWithoutParams(t *testing.T) {
	t.Parallel()
	c, p := start(t, Options{})
	go func() { _, _ = c.Call(t.Context(), `odd "method"`, nil) }()
	if _, body := p.receiveCall(); body != `{"jsonrpc":"2.0","id":1,"method":"odd \"method\""}` {
		t.Errorf("wrote %q", body)
	}
}

// A part of a surrogate pair is JSON: Go and JavaScript read it.
func TestLoneSurrogateIsSent(t *testing.T) {
	t.Parallel()
	c, p := start(t, Options{})
	go func() { _, _ = c.Call(t.Context(), "m", []byte(`{"a":"\ud800"}`)) }()
	if _, body := p.receiveCall(); !strings.Contains(body, `"\ud800"`) {
		t.Errorf("wrote %q", body)
	}
}

func TestCallRefusesWhatIsNotOneValue(t *testing.T) {
	t.Parallel()
	c, _ := start(t, Options{})
	for _, params := range []string{``, ` `, `{`, `{}}`, `{},"method":"runtime.shutdown"`, `{"a":"\"}`, `[}`, `1 2`, `{"a":nope}`, "\"\xff\""} {
		_, err := c.Call(t.Context(), "m", []byte(params))
		if !errors.Is(err, ErrInvalidJSON) || !errors.Is(err, ErrNotSent) {
			t.Errorf("params %q: %v", params, err)
		}
		if err := c.Notify(t.Context(), "m", []byte(params)); !errors.Is(err, ErrInvalidJSON) {
			t.Errorf("notify %q: %v", params, err)
		}
	}
}

func TestNotify(t *testing.T) {
	t.Parallel()
	c, p := start(t, Options{})
	if err := c.Notify(t.Context(), "n", []byte(`{"b":1,"a":"<"}`)); err != nil {
		t.Fatal(err)
	}
	if got, want := p.receive(), `{"jsonrpc":"2.0","method":"n","params":{"b":1,"a":"<"}}`; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Notify(ctx, "n", nil); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrNotSent) {
		t.Errorf("ended context: %v", err)
	}
}

func TestPeerErrors(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]*Error{
		`"error":{"code":-32603,"message":"Request x failed"}`: {Code: -32603,
			Message: "Request x failed"},
		`"error":{"message":"<&>","data":{"b":1,"a":9007199254740993},"code":-32000}`: {Code: -32000, Message: "<&>",
			Data: []byte(`{"b":1,"a":9007199254740993}`)},
		`"error":{"code":7,"message":""},"result":1`: {Code: 7},
		`"error":{"code":-32001,"message":"AUTHENTICATION_REQUIRED","extra":[1,2,[3]]} `: {Code: -32001,
			Message: "AUTHENTICATION_REQUIRED"},
	} {
		t.Run(reply, func(t *testing.T) {
			t.Parallel()
			c, p := start(t, Options{})
			done := call(t.Context(), c, "m", `{}`)
			id, _ := p.receiveCall()
			p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, id, reply))
			var got *Error
			err := fmt.Errorf("wrapped: %w", (<-done).err)
			if !errors.As(err, &got) {
				t.Fatalf("error %v is no *Error", err)
			}
			if got.Code != want.Code || got.Message != want.Message || string(got.Data) != string(want.Data) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestBadReplies(t *testing.T) {
	t.Parallel()
	c, p := start(t, Options{})
	for _, reply := range []string{`"error":"text"`, `"error":null`, `"other":1`} {
		done := call(t.Context(), c, "m", `{}`)
		id, _ := p.receiveCall()
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, id, reply))
		var callErr *CallError
		if err := (<-done).err; !errors.Is(err, ErrBadReply) || !errors.As(err, &callErr) || !callErr.Sent {
			t.Errorf("%s: %v", reply, err)
		}
	}
}

// A reply without a call is counted and changes nothing, for any id.
func TestUnknownAndDuplicateReplies(t *testing.T) {
	t.Parallel()
	c, p := start(t, Options{})
	first := call(t.Context(), c, "m", `{}`)
	id, _ := p.receiveCall()
	for _, other := range []string{"null", "0", "-1", `"1"`, "1.0", "18446744073709551616", "999", "{}"} {
		p.send(`{"jsonrpc":"2.0","id":` + other + `,"result":"wrong"}`)
	}
	p.answer(id, `"right"`)
	p.answer(id, `"again"`)
	second := call(t.Context(), c, "m", `{}`)
	id, _ = p.receiveCall()
	p.answer(id, `"second"`)
	if got := <-first; string(got.result) != `"right"` {
		t.Errorf("first call got %s, %v", got.result, got.err)
	}
	if got := <-second; string(got.result) != `"second"` {
		t.Errorf("second call got %s, %v", got.result, got.err)
	}
	if s := c.Stats(); s.UnknownReplies != 9 || s.Replies != 2 {
		t.Errorf("unknown %d, replies %d; want 9, 2", s.UnknownReplies, s.Replies)
	}
}

func TestCancelWhileWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := start(t, Options{MaxInFlight: 2, ReservedInFlight: 1, AbandonGrace: time.Minute})
		ctx, cancel := context.WithCancelCause(t.Context())
		replied := false
		done := call(ctx, c, "slow", `{}`, OnReply(func() { replied = true }))
		id, _ := p.receiveCall()
		cause := errors.New("caller left")
		cancel(cause)
		got := <-done
		var callErr *CallError
		if !errors.As(got.err, &callErr) || !callErr.Sent || !errors.Is(got.err, context.Canceled) ||
			!errors.Is(got.err, cause) {
			t.Fatalf("cancelled call: %v", got.err)
		}
		synctest.Wait()

		// The only slot stays with the peer's work until it is answered.
		next := call(t.Context(), c, "next", `{}`)
		synctest.Wait()
		if s := c.Stats(); s.InFlight != 1 || s.Abandoned != 1 || s.SlotWaits != 1 {
			t.Errorf("before the late reply: %+v", s)
		}
		p.answer(id, `{}`)
		id, body := p.receiveCall()
		if !strings.Contains(body, `"next"`) {
			t.Fatalf("wrote %q", body)
		}
		p.answer(id, `"fine"`)
		if got := <-next; string(got.result) != `"fine"` {
			t.Errorf("next call: %s, %v", got.result, got.err)
		}
		synctest.Wait()
		if s := c.Stats(); s.LateReplies != 1 || s.UnknownReplies != 0 || s.InFlight != 0 {
			t.Errorf("after the late reply: %+v", s)
		}
		if replied {
			t.Error("OnReply ran for a late reply")
		}
	})
}

// Abandoned calls do not occupy their slots forever, also if the peer never replies.
func TestAbandonedSlotComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := start(t, Options{MaxInFlight: 1, AbandonGrace: time.Minute})
		go func() { _, _ = io.Copy(io.Discard, p.conn) }()
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := c.Call(ctx, "hang", nil); !errors.Is(err, context.DeadlineExceeded) ||
				errors.Is(err, ErrNotSent) {
				t.Fatalf("hanging call: %v", err)
			}
			cancel()
			synctest.Wait()
			if n := c.Stats().InFlight; n != 1 {
				t.Fatalf("%d slots held during the grace time, want 1", n)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := c.Stats().InFlight; n != 0 {
				t.Fatalf("%d slots held after the grace time, want 0", n)
			}
		}
		if n := c.Stats().Unanswered; n != 3 {
			t.Errorf("%d calls unanswered, want 3", n)
		}
		p.answer(2, `{}`)
		synctest.Wait()
		if s := c.Stats(); s.Unanswered != 2 || s.LateReplies != 1 || s.UnknownReplies != 0 {
			t.Errorf("after a reply that came after the grace time: %+v", s)
		}
	})
}

// OnFree runs when a call no longer counts: at its reply, at its refusal, and for an abandoned call when its
// slot is free.
func TestOnFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := start(t, Options{AbandonGrace: time.Minute})
		var freed atomic.Int32 // by the goroutine of a timer too
		count := OnFree(func() { freed.Add(1) })
		done := call(t.Context(), c, "answered", `{}`, count)
		id, _ := p.receiveCall()
		p.answer(id, `{}`)
		<-done
		if freed.Load() != 1 {
			t.Errorf("after the reply it was told %d times", freed.Load())
		}
		if _, err := c.Call(t.Context(), "bad", []byte(`{`), count); err == nil || freed.Load() != 2 {
			t.Errorf("after a refusal (%v) it was told %d times", err, freed.Load())
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Call(over, "late", []byte(`{}`), count); err == nil || freed.Load() != 3 {
			t.Errorf("after a call without time (%v) it was told %d times", err, freed.Load())
		}
		ctx, giveUp := context.WithCancel(t.Context())
		done = call(ctx, c, "abandoned", `{}`, count)
		p.receiveCall()
		giveUp()
		<-done
		if freed.Load() != 3 {
			t.Error("a call that was given up counts no more while the peer is busy with it")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if freed.Load() != 4 {
			t.Errorf("after the grace it was told %d times", freed.Load())
		}
	})
}

func TestCancelWhileQueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := start(t, Options{})
		first := call(t.Context(), c, "first", `{}`) // taken by the writer, which blocks
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Call(ctx, "second", []byte(`{}`))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrNotSent) {
			t.Fatalf("queued call: %v", err)
		}
		third := call(t.Context(), c, "third", `{}`)
		for range 2 {
			id, body := p.receiveCall()
			if strings.Contains(body, "second") {
				t.Error("a cancelled call was written")
			}
			p.answer(id, `1`)
		}
		if a, b := <-first, <-third; a.err != nil || b.err != nil {
			t.Errorf("other calls: %v, %v", a.err, b.err)
		}
		synctest.Wait()
		if s := c.Stats(); s.DroppedUnsent != 1 || s.InFlight != 0 || s.QueuedBytes != 0 {
			t.Errorf("stats: %+v", s)
		}
	})
}

func TestPriorityLane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := start(t, Options{MaxInFlight: 3, ReservedInFlight: 1})
		go func() { _, _ = io.Copy(io.Discard, p.conn) }()
		for range 3 { // the third waits
			call(t.Context(), c, "ordinary", `{}`)
			synctest.Wait()
		}
		if s := c.Stats(); s.InFlight != 2 || s.SlotWaits != 1 {
			t.Fatalf("ordinary calls: %+v", s)
		}
		call(t.Context(), c, "answer", `{}`, Priority())
		synctest.Wait()
		if s := c.Stats(); s.InFlight != 3 {
			t.Errorf("the priority call waits too: %+v", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Call(ctx, "answer", nil, Priority()); !errors.Is(err, context.DeadlineExceeded) ||
			!errors.Is(err, ErrNotSent) {
			t.Errorf("one over the reserved lane: %v", err)
		}
	})
}

func TestOutboundFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := start(t, Options{MaxOutbound: 8000})
		params := `"` + strings.Repeat("x", 2000) + `"`
		var calls []<-chan outcomeOf
		for range 3 {
			calls = append(calls, call(t.Context(), c, "m", params))
			synctest.Wait()
		}
		_, err := c.Call(t.Context(), "m", []byte(params))
		if !errors.Is(err, ErrOutboundFull) || !errors.Is(err, ErrNotSent) {
			t.Errorf("call over the bound: %v", err)
		}
		if err := c.Notify(t.Context(), "m", []byte(params)); !errors.Is(err, ErrOutboundFull) {
			t.Errorf("notification over the bound: %v", err)
		}
		// The last eighth is reserved for answers.
		calls = append(calls, call(t.Context(), c, "answer", `"`+strings.Repeat("x", 800)+`"`, Priority()))
		synctest.Wait()
		for range calls {
			id, _ := p.receiveCall()
			p.answer(id, "1")
		}
		for _, done := range calls {
			if got := <-done; got.err != nil {
				t.Errorf("queued call: %v", got.err)
			}
		}
		synctest.Wait()
		if s := c.Stats(); s.QueuedBytes != 0 || s.InFlight != 0 {
			t.Errorf("stats: %+v", s)
		}
	})
}

// A deadline holds although the peer reads nothing, and calls, notifications
// and reading are not held up by it.
func TestPeerStopsReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := 0
		c, p := start(t, Options{Event: func([]byte) { events++ }})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		one := call(ctx, c, "one", `{}`)
		two := call(ctx, c, "two", `{}`)
		if err := c.Notify(ctx, "n", nil); err != nil {
			t.Errorf("notify: %v", err)
		}
		p.send(event(1))
		p.send(event(2))
		for _, done := range []<-chan outcomeOf{one, two} {
			if got := <-done; !errors.Is(got.err, context.DeadlineExceeded) {
				t.Errorf("call: %v", got.err)
			}
		}
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("deadline of 3 s came after %v", took)
		}
		synctest.Wait()
		if events != 2 {
			t.Errorf("%d events, want 2", events)
		}
	})
}

// Many callers at once, some of whom leave at any moment: every answer reaches
// its own call, and nothing is left behind.
func TestManyCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := net.Pipe()
		c := New(mine, Options{MaxInFlight: 20, ReservedInFlight: 5})
		echo := New(theirs, Options{Request: echoRequest, MaxRequestWorkers: 8})
		var callers sync.WaitGroup
		for caller := range 50 {
			callers.Go(func() {
				for n := range 40 {
					ctx, cancel := context.WithCancel(t.Context())
					if n%3 == 0 {
						go cancel()
					}
					params := fmt.Sprintf(`{"caller":%d,"n":%d}`, caller, n)
					opts := []CallOption{OnReply(func() {})}
					if n%5 == 0 {
						opts = append(opts, Priority())
					}
					got, err := c.Call(ctx, "echo", []byte(params), opts...)
					if err == nil && string(got) != params || err != nil && !errors.Is(err, context.Canceled) {
						t.Errorf("sent %s, got %s, %v", params, got, err)
					}
					cancel()
				}
			})
		}
		callers.Wait()
		synctest.Wait()
		s := c.Stats()
		if s.InFlight != 0 || s.QueuedBytes != 0 || s.UnknownReplies != 0 || s.LateReplies != s.Abandoned ||
			s.Unanswered != 0 {
			t.Errorf("stats: %+v", s)
		}
		_ = c.Close()
		c.Wait()
		echo.Wait()
	})
}
