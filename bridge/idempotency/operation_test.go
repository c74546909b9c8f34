package idempotency

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

type text = wrapperspb.StringValue

func newRunner(t *testing.T) (*Runner, *shutdown.Coordinator) {
	s := shutdown.New()
	t.Cleanup(s.Close)
	return New(s, nil, slog.New(slog.DiscardHandler)), s
}

// limited returns a runner with quotas of each tenant and of all tenants together.
func limited(t *testing.T, own, all Quota) *Runner {
	r, _ := newRunner(t)
	r.limits = func(string) (a, b Quota) { return own, all }
	return r
}

// logging returns a runner with a log and the requests of an earlier process.
func logging(t *testing.T, log backend.Requests, requests ...backend.Request) *Runner {
	r, _ := newRunner(t)
	r.Restore(log, requests)
	return r
}

// digest is that of a request.
func digest(t *testing.T, request proto.Message) []byte {
	t.Helper()
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(encoded)
	return sum[:]
}

// counting returns an operation that answers with the number of the call.
func counting(calls *int, change func(*Operation[*text])) Operation[*text] {
	op := Operation[*text]{Scope: "Call", ID: "1", Request: wrapperspb.String("q")}
	op.Do = Blocking(func(context.Context) (*text, error) {
		*calls++
		return wrapperspb.String(string(rune('0' + *calls))), nil
	})
	if change != nil {
		change(&op)
	}
	return op
}

// Whether a second operation is the first one again.
func TestRepeats(t *testing.T) {
	t.Parallel()
	guest := caller.With(t.Context(), caller.Caller{Tenant: "guest"})
	prompt := func(trace string) *bridgev1.SendRequest {
		return &bridgev1.SendRequest{Prompt: &bridgev1.Prompt{Text: "hi", Traceparent: trace}}
	}
	for name, test := range map[string]struct {
		ctx    context.Context
		change func(*Operation[*text])
		first  proto.Message
		want   string
		reason fault.Reason
	}{
		"the same":          {want: "1"},
		"detached":          {change: func(o *Operation[*text]) { o.Detach = true }, want: "1"},
		"another id":        {change: func(o *Operation[*text]) { o.ID = "2" }, want: "2"},
		"no id":             {change: func(o *Operation[*text]) { o.ID = "" }, want: "2"},
		"another scope":     {change: func(o *Operation[*text]) { o.Scope = On("Call", "s") }, want: "2"},
		"another tenant":    {ctx: guest, want: "2"},
		"another request":   {change: func(o *Operation[*text]) { o.Request = wrapperspb.String("r") }, reason: fault.RequestIDReused},
		"another trace":     {first: prompt("00-a"), change: func(o *Operation[*text]) { o.Request = prompt("00-b") }, want: "1"},
		"a trace, and none": {first: prompt("00-a"), change: func(o *Operation[*text]) { o.Request = prompt("") }, want: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := newRunner(t)
			calls := 0
			if _, err := Run(t.Context(), r, counting(&calls, func(o *Operation[*text]) {
				if test.first != nil {
					o.Request = test.first
				}
			})); err != nil {
				t.Fatal(err)
			}
			ctx := test.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			got, err := Run(ctx, r, counting(&calls, test.change))
			if got.GetValue() != test.want || fault.ReasonOf(err) != test.reason {
				t.Errorf("the second is answered %q, %v", got.GetValue(), err)
			}
		})
	}
}

func TestFailuresAreTriedAgain(t *testing.T) {
	t.Parallel()
	r, _ := newRunner(t)
	calls := 0
	op := counting(&calls, nil)
	failing := op
	failing.Do = Blocking(func(context.Context) (*text, error) { return nil, errors.New("no") })
	if got, err := Run(t.Context(), r, failing); err == nil || got != nil {
		t.Errorf("it failed with %v, %v", got, err)
	}
	if got, err := Run(t.Context(), r, op); err != nil || got.GetValue() != "1" {
		t.Errorf("then %v, %v", got, err)
	}
}

// A caller that leaves gets an error at once. A detached operation continues, and the next
// request with its id gets its answer; all others end with their caller.
func TestCallersLeave(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		id     string
		detach bool
		calls  int
		limit  time.Duration
		reason fault.Reason
	}{
		"detached":               {"1", true, 1, 0, fault.Cancelled},
		"detached, by deadline":  {"1", true, 1, time.Second, fault.Timeout},
		"attached":               {"1", false, 2, 0, fault.None},
		"detached without an id": {"", true, 2, 0, fault.None},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, _ := newRunner(t)
				calls := 0
				op := counting(&calls, func(o *Operation[*text]) { o.ID, o.Detach = test.id, test.detach })
				op.Do = Blocking(func(ctx context.Context) (*text, error) {
					calls++
					answer := wrapperspb.String("")
					select {
					case <-time.After(time.Minute):
						return answer, nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if test.limit > 0 {
					ctx, leave = context.WithTimeout(t.Context(), test.limit)
					defer leave()
				} else {
					time.AfterFunc(time.Second, leave)
				}
				begin := time.Now()
				_, err := Run(ctx, r, op)
				if fault.ReasonOf(err) != test.reason || !errors.Is(err, ctx.Err()) || time.Since(begin) != time.Second {
					t.Errorf("after %v: %v", time.Since(begin), err)
				}
				if _, err := Run(t.Context(), r, op); err != nil || calls != test.calls {
					t.Errorf("the next: %v, after %d calls", err, calls)
				}
			})
		})
	}
}

func TestDetachedOperationsEnd(t *testing.T) {
	t.Parallel()
	hang := Blocking(func(ctx context.Context) (*text, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	op := Operation[*text]{Scope: "Call", ID: "1", Request: wrapperspb.String("q"), Detach: true, Do: hang}
	t.Run("after their time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r, _ := newRunner(t)
			begin := time.Now()
			if _, err := Run(t.Context(), r, op); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != detachedTimeout {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
		})
	})
	t.Run("with the bridge", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r, s := newRunner(t)
			time.AfterFunc(time.Second, s.Close)
			// It ends with whichever comes first: the bridge, or the operation that ends with it.
			if _, err := Run(t.Context(), r, op); fault.ReasonOf(err) != fault.Draining && !errors.Is(err, context.Canceled) {
				t.Errorf("it ends with %v", err)
			}
			if _, err := Run(t.Context(), r, op); fault.ReasonOf(err) != fault.Draining {
				t.Errorf("the next ends with %v", err)
			}
		})
	})
}

// How an operation is settled that the previous process began and did not finish.
func TestSettling(t *testing.T) {
	t.Parallel()
	lost := fault.New(fault.SendUnconfirmed, "not there")
	for name, test := range map[string]struct {
		settle bool
		finds  []error // what Find returns, one after the other; then it finds the answer
		want   []string
	}{
		"it is carried out again":  {false, nil, []string{"1", "1"}},
		"the answer is found":      {true, nil, []string{"found before", "found before"}},
		"it cannot be found yet":   {true, []error{errors.New("later")}, []string{"later", "found before", "found before"}},
		"it did not take effect":   {true, []error{lost}, []string{"not there", "1", "1"}},
		"after a while it did not": {true, []error{errors.New("later"), lost}, []string{"later", "not there", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := newRunner(t)
			calls := 0
			op := counting(&calls, nil)
			r.Restore(nil, []backend.Request{{
				Key: backend.Key{Operation: op.Scope, ID: op.ID}, Sum: digest(t, op.Request), Expires: time.Now().Add(time.Hour),
				Since: []byte("before"),
			}})
			if test.settle {
				op.Settle = &Settlement[*text]{
					Before: func(context.Context) []byte { return []byte("now") },
					Find: func(_ context.Context, before []byte) (*text, error) {
						if len(test.finds) > 0 {
							err := test.finds[0]
							test.finds = test.finds[1:]
							return nil, err
						}
						return wrapperspb.String("found " + string(before)), nil
					},
				}
			}
			for i, want := range test.want {
				got, err := Run(t.Context(), r, op)
				if err == nil && got.GetValue() != want || err != nil && err.Error() != want {
					t.Errorf("request %d: %q, %v, want %q", i, got.GetValue(), err, want)
				}
			}
		})
	}
}

// A failure that leaves the outcome unknown is settled by the next request.
func TestUnconfirmedFailures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		unconfirmed bool
		want        string
	}{"it took effect, perhaps": {true, "found"}, "it did not": {false, "1"}} {
		r, _ := newRunner(t)
		calls := 0
		op := counting(&calls, nil)
		op.Settle = &Settlement[*text]{
			Before:      func(context.Context) []byte { return []byte("now") },
			Find:        func(context.Context, []byte) (*text, error) { return wrapperspb.String("found"), nil },
			Unconfirmed: func(error) bool { return test.unconfirmed },
		}
		failing := op
		failing.Do = Blocking(func(context.Context) (*text, error) { return nil, errors.New("the connection broke") })
		if _, err := Run(t.Context(), r, failing); err == nil {
			t.Errorf("%s: no failure", name)
		}
		if got, err := Run(t.Context(), r, op); err != nil || got.GetValue() != test.want {
			t.Errorf("%s: the next is answered %v, %v, want %q", name, got, err, test.want)
		}
	}
}
