package rpcconn

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// begin starts a call, and returns where its end comes.
func begin(t *testing.T, c *Conn, limit time.Duration, opts ...CallOption) (<-chan outcomeOf, error) {
	t.Helper()
	done := make(chan outcomeOf, 2) // one too many is seen
	err := c.Start("m", []byte(`{"a":1}`), limit,
		func(result json.RawMessage, err error) { done <- outcomeOf{result, err} }, opts...)
	return done, err
}

func begun(t *testing.T, c *Conn, limit time.Duration) <-chan outcomeOf {
	t.Helper()
	done, err := begin(t, c, limit)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// The end of a call that no goroutine waits for comes once, whatever ends it, and its slot is free then.
func TestStart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do   func(c *Conn, p *peer, id int)
		want func(outcomeOf) bool
	}{
		"a result": {
			func(_ *Conn, p *peer, id int) { p.answer(id, `{"b":2}`) },
			func(o outcomeOf) bool { return o.err == nil && string(o.result) == `{"b":2}` },
		},
		"an error": {
			func(_ *Conn, p *peer, _ int) {
				p.send(`{"jsonrpc":"2.0","id":1,"error":{"code":7,"message":"no"}}`)
			},
			func(o outcomeOf) bool {
				bad, ok := errors.AsType[*Error](o.err)
				return ok && bad.Code == 7
			},
		},
		"a malformed reply": {
			func(_ *Conn, p *peer, _ int) { p.send(`{"jsonrpc":"2.0","id":1}`) },
			func(o outcomeOf) bool { return errors.Is(o.err, ErrBadReply) && !errors.Is(o.err, ErrNotSent) },
		},
		"no reply in time, and one later": {
			func(_ *Conn, p *peer, id int) {
				time.Sleep(time.Minute)
				p.answer(id, `{}`)
			},
			func(o outcomeOf) bool {
				return errors.Is(o.err, context.DeadlineExceeded) && !errors.Is(o.err, ErrNotSent)
			},
		},
		"the end of the connection": {
			func(c *Conn, _ *peer, _ int) { _ = c.Close() },
			func(o outcomeOf) bool { return errors.Is(o.err, ErrLocalClose) && !errors.Is(o.err, ErrNotSent) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, p := start(t, Options{MaxInFlight: 1})
				freed := 0
				done, err := begin(t, c, time.Second, OnFree(func() { freed++ }))
				if err != nil {
					t.Fatal(err)
				}
				id, _ := p.receiveCall()
				test.do(c, p, id)
				if got := <-done; !test.want(got) {
					t.Errorf("it ends with %s, %v", got.result, got.err)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if len(done) > 0 || freed != 1 || len(c.calls) > 0 {
					t.Errorf("%d more ends; freed %d times; %d calls are left", len(done), freed, len(c.calls))
				}
			})
		})
	}
}

// Calls without a slot wait for one, in the order of Start; those with priority come first. A call that ends while it
// waits is never sent, and beyond MaxWaiting none waits.
func TestStartWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := start(t, Options{MaxInFlight: 2, ReservedInFlight: 1, MaxWaiting: 4})
		first := begun(t, c, time.Hour)
		id, _ := p.receiveCall()
		urgent, err := begin(t, c, time.Hour, Priority())
		if err != nil {
			t.Fatal(err)
		}
		urgentID, _ := p.receiveCall()
		short, second, third := begun(t, c, time.Second), begun(t, c, time.Hour), begun(t, c, time.Hour)
		late, err := begin(t, c, time.Hour, Priority())
		if err != nil {
			t.Fatal(err)
		}
		freed := 0
		if _, err := begin(t, c, time.Hour, OnFree(func() { freed++ })); !errors.Is(err, ErrTooManyCalls) ||
			!errors.Is(err, ErrNotSent) || freed != 1 {
			t.Errorf("a fifth that waits: %v, freed %d times", err, freed)
		}
		if got := <-short; !errors.Is(got.err, context.DeadlineExceeded) || !errors.Is(got.err, ErrNotSent) {
			t.Errorf("a call whose limit passes while it waits: %v", got.err)
		}
		ids := map[<-chan outcomeOf]int{}
		for _, step := range []struct {
			answered int
			ended    <-chan outcomeOf
			sent     <-chan outcomeOf
		}{{id, first, late}, {urgentID, urgent, nil}, {0, late, second}, {0, second, third}, {0, third, nil}} {
			if step.answered == 0 {
				step.answered = ids[step.ended]
			}
			p.answer(step.answered, `1`)
			if got := <-step.ended; got.err != nil {
				t.Fatalf("it ends with %v", got.err)
			}
			if step.sent != nil {
				ids[step.sent], _ = p.receiveCall()
			}
		}
		if s := c.Stats(); s.SlotWaits != 4 || s.InFlight != 0 {
			t.Errorf("%d calls have waited, %d are in flight", s.SlotWaits, s.InFlight)
		}
	})
}

// Calls that wait for a slot end with the connection, once, and say that they were not sent.
func TestWaitingEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := start(t, Options{MaxInFlight: 1})
		sent, waiting := begun(t, c, time.Hour), begun(t, c, time.Hour)
		p.receiveCall()
		_ = c.Close()
		if got := <-sent; !errors.Is(got.err, ErrLocalClose) || errors.Is(got.err, ErrNotSent) {
			t.Errorf("the sent one: %v", got.err)
		}
		if got := <-waiting; !errors.Is(got.err, ErrLocalClose) || !errors.Is(got.err, ErrNotSent) {
			t.Errorf("the waiting one: %v", got.err)
		}
		time.Sleep(2 * time.Hour)
		if len(sent)+len(waiting) > 0 {
			t.Error("a call has ended twice")
		}
	})
}

// Calls without a reply end in the order in which they began when the connection ends.
func TestCallsEndInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := start(t, Options{})
		var order []int
		for n := range 20 {
			if err := c.Start("m", nil, 0, func(json.RawMessage, error) { order = append(order, n) }); err != nil {
				t.Fatal(err)
			}
			p.receiveCall()
		}
		_ = c.Close()
		synctest.Wait()
		if len(order) != 20 || !slices.IsSorted(order) {
			t.Errorf("the calls end in the order %v", order)
		}
	})
}

// A call that cannot be queued fails at once, and has no other end.
func TestStartRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := start(t, Options{MaxInFlight: 2, ReservedInFlight: 1})
		first := begun(t, c, time.Hour)
		id, _ := p.receiveCall()
		priority, err := begin(t, c, time.Hour, Priority())
		if err != nil {
			t.Fatalf("an answer has its own slots: %v", err)
		}
		second, _ := p.receiveCall()
		p.answer(id, `1`)
		p.answer(second, `2`)
		if a, b := <-first, <-priority; string(a.result) != "1" || string(b.result) != "2" {
			t.Errorf("they end with %+v and %+v", a, b)
		}
		_ = c.Close()
		done, err := begin(t, c, time.Hour)
		if !errors.Is(err, ErrLocalClose) || !errors.Is(err, ErrNotSent) {
			t.Errorf("on a closed connection: %v", err)
		}
		if err := c.Start("m", []byte(`{`), time.Hour, nil); !errors.Is(err, ErrInvalidJSON) {
			t.Errorf("invalid parameters: %v", err)
		}
		synctest.Wait()
		if len(done) > 0 {
			t.Error("a call that was refused has ended too")
		}
	})
}

// The end of a call's context counts although the connection ends with it, as that of a process does that its start
// context kills.
func TestEndOfContextAndConnection(t *testing.T) {
	t.Parallel()
	for range 100 {
		c, p := start(t, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := c.Call(ctx, "m", nil)
			done <- err
		}()
		p.receiveCall()
		cancel()
		_ = c.Close()
		if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, ErrNotSent) {
			t.Fatalf("it ends with %v", err)
		}
	}
}
