package idempotency

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// do answers a request by f, and waits for the answer.
func do(
	ctx context.Context, r *Runner, k backend.Key, request proto.Message, s *Settlement[proto.Message],
	f func() (proto.Message, error),
) (proto.Message, error) {
	return async.Wait(context.WithoutCancel(ctx), func(done func(proto.Message, error)) {
		start(ctx, r, k, request, s, func(_ context.Context, done func(proto.Message, error)) { done(f()) }, done)
	})
}

// start starts the operation of a key.
func start(
	ctx context.Context, r *Runner, k backend.Key, request proto.Message, s *Settlement[proto.Message],
	do func(context.Context, func(proto.Message, error)), done func(proto.Message, error),
) {
	Start(caller.With(ctx, caller.Caller{Tenant: k.Tenant}), r, Operation[proto.Message]{
		Scope: k.Operation, ID: k.ID, Request: request, Do: do, Settle: s,
	}, done)
}

// settlement is the one of an operation that began with "then".
func settlement(find func(ctx context.Context, before []byte) (proto.Message, error)) *Settlement[proto.Message] {
	return &Settlement[proto.Message]{Before: func(context.Context) []byte { return []byte("then") }, Find: find}
}

// key is that of a Send.
func key(tenant, id string) backend.Key {
	return backend.Key{Tenant: tenant, Operation: backend.OpSend, ID: id}
}

func TestDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := newRunner(t)
		ctx := t.Context()
		calls := 0
		do := func(id, request string) (string, error) {
			m, err := do(ctx, s, key("", id), wrapperspb.String(request), nil, func() (proto.Message, error) {
				calls++
				if request == "fail" {
					return nil, errors.New("no")
				}
				return wrapperspb.String(request + "!"), nil
			})
			if err != nil {
				return "", err
			}
			return m.(*wrapperspb.StringValue).Value, nil
		}
		steps := []struct {
			id, request, want string
			reason            fault.Reason
			calls             int
			wait              time.Duration
		}{
			{"1", "a", "a!", 0, 1, 0},
			{"1", "a", "a!", 0, 1, 0},
			{"1", "b", "", fault.RequestIDReused, 1, 0},
			{"2", "a", "a!", 0, 2, 0},
			{"", "a", "a!", 0, 3, 0},
			{"", "a", "a!", 0, 4, 0},
			{"1", "a", "a!", 0, 5, Keep + time.Second},
			{string(make([]byte, 129)), "a", "", fault.InvalidField, 5, 0},
		}
		for i, step := range steps {
			time.Sleep(step.wait) // the bubble's clock
			got, err := do(step.id, step.request)
			if got != step.want || fault.ReasonOf(err) != step.reason || calls != step.calls {
				t.Fatalf("step %d: %q, %v, %d calls; want %q, %q, %d", i, got, err, calls, step.want, step.reason, step.calls)
			}
		}
		if _, err := do("f", "fail"); err == nil || calls != 6 {
			t.Fatal("a failure was not returned")
		}
		if _, err := do("f", "fail"); err == nil || calls != 7 {
			t.Fatal("a failure was remembered")
		}
	})
}

func TestDoJoinsTheOneUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := newRunner(t)
		release := make(chan struct{})
		results := make(chan proto.Message, 2)
		for range 2 {
			go func() {
				m, err := do(context.Background(), s, key("", "1"), wrapperspb.String("a"), nil, func() (proto.Message, error) {
					<-release
					return wrapperspb.String("once"), nil
				})
				if err != nil {
					t.Error(err)
				}
				results <- m
			}()
		}
		synctest.Wait()
		close(release)
		if a, b := <-results, <-results; a != b {
			t.Fatal("two answers to one request")
		}
	})
}

// answerType is the type of the answers in these tests.
const answerType = "google.protobuf.StringValue"

// kept is a log in memory.
type kept struct {
	lines  []string
	answer proto.Message
}

func (k *kept) Add(r backend.Request) error {
	line := fmt.Sprintf("ended %q %v", r.Key.ID, !r.Over)
	if r.Type == "" && !r.Over {
		line = fmt.Sprintf("begun %q %s", r.Key.ID, r.Since)
	}
	k.lines = append(k.lines, line)
	return nil
}

func (k *kept) Answer(key backend.Key) (typ string, answer []byte, err error) {
	k.lines = append(k.lines, fmt.Sprintf("read %q", key.ID))
	answer, err = proto.Marshal(k.answer)
	return answerType, answer, err
}

func (k *kept) Forget(key backend.Key, _ time.Time) {
	k.lines = append(k.lines, fmt.Sprintf("forgotten %q", key.ID))
}

func (k *kept) Compact(context.Context) error { return nil }

func (k *kept) Close() error { return nil }

// A request that an earlier process began is settled, not made again; until that succeeds it
// stays in doubt.
func TestDoubt(t *testing.T) {
	t.Parallel()
	request, answer := wrapperspb.String("r"), wrapperspb.String("a")
	log := &kept{}
	d := settlement(nil)
	_, err := do(t.Context(), logging(t, log), key("", "1"), request, d, func() (proto.Message, error) { return answer, nil })
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{`begun "1" then`, `ended "1" true`}; !slices.Equal(log.lines, want) {
		t.Errorf("the log has %q, want %q", log.lines, want)
	}
	sum, later := digest(t, request), time.Now().Add(time.Hour)
	text, err := proto.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	next := logging(t, nil,
		backend.Request{Key: key("", "1"), Sum: sum, Expires: later, Since: []byte("then")},
		backend.Request{Key: key("", "2"), Sum: sum, Expires: later, Type: answerType, Answer: text})
	never := func() (proto.Message, error) { t.Error("made again"); return nil, nil }
	if got, err := do(t.Context(), next, key("", "2"), request, nil, never); err != nil || !proto.Equal(got, answer) {
		t.Errorf("the answer of the earlier process is %v, %v", got, err)
	}
	for _, failure := range []error{fault.New(fault.CredentialsNeeded, "not now"), fault.New(fault.SendUnconfirmed, "lost")} {
		d.Find = func(_ context.Context, before []byte) (proto.Message, error) {
			if string(before) != "then" {
				t.Errorf("before is %q", before)
			}
			return nil, failure
		}
		if _, err := do(t.Context(), next, key("", "1"), request, d, never); !errors.Is(err, failure) {
			t.Errorf("settled with %v, want %v", err, failure)
		}
	}
	if got, err := do(t.Context(), next, key("", "1"), request, d, func() (proto.Message, error) { return answer, nil }); err != nil || got != answer {
		t.Errorf("made again after it was lost: %v, %v", got, err)
	}
}

// A failure that leaves open what became of the request is settled by the next who comes,
// in the same life and without a log.
func TestFailureThatLeavesItOpen(t *testing.T) {
	t.Parallel()
	open, shut := errors.New("open"), errors.New("shut")
	for name, test := range map[string]struct {
		failure, settled error
		calls, settles   int // after three requests
	}{
		"open, and found":       {open, nil, 1, 1},
		"open, and lost":        {open, fault.New(fault.SendUnconfirmed, "lost"), 2, 1},
		"open, and not settled": {open, fault.New(fault.CredentialsNeeded, "not now"), 1, 2},
		"not open":              {shut, nil, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := newRunner(t)
			calls, settles := 0, 0
			d := settlement(func(_ context.Context, before []byte) (proto.Message, error) {
				if settles++; string(before) != "then" {
					t.Errorf("before is %q", before)
				}
				if test.settled != nil {
					return nil, test.settled
				}
				return wrapperspb.String("found"), nil
			})
			d.Unconfirmed = func(err error) bool { return errors.Is(err, open) }
			for range 3 {
				_, _ = do(t.Context(), s, key("", "1"), wrapperspb.String("r"), d, func() (proto.Message, error) {
					if calls++; calls == 1 {
						return nil, test.failure
					}
					return wrapperspb.String("made"), nil
				})
			}
			if calls != test.calls || settles != test.settles {
				t.Errorf("made %d times and settled %d times, want %d and %d", calls, settles, test.calls, test.settles)
			}
		})
	}
}

// shared is a log to which another process has written.
type shared struct {
	kept

	others map[backend.Key]backend.Request
	fail   error // of looking a request up
	full   error // of adding one
}

func (l *shared) Find(_ context.Context, key backend.Key) (backend.Request, bool, error) {
	r, ok := l.others[key]
	return r, ok, l.fail
}

// A request that another process has carried out is not carried out again. One that cannot be looked up is refused.
func TestRequestOfAnotherProcess(t *testing.T) {
	t.Parallel()
	request := wrapperspb.String("r")
	first := wrapperspb.String("the first answer")
	text, err := proto.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	key := backend.Key{Operation: backend.OpCreate, ID: "r"}
	log := &shared{others: map[backend.Key]backend.Request{
		key: {Key: key, Sum: digest(t, request), Expires: time.Now().Add(time.Hour), Type: answerType, Answer: text},
	}}
	s := logging(t, log)
	calls := 0
	do := func(k backend.Key, request proto.Message) (proto.Message, error) {
		return do(t.Context(), s, k, request, nil, func() (proto.Message, error) {
			calls++
			return wrapperspb.String("another answer"), nil
		})
	}
	got, err := do(key, request)
	if err != nil || !proto.Equal(got, first) || calls != 0 {
		t.Errorf("the answer is %v, %v, after %d calls", got, err, calls)
	}
	_, err = do(key, wrapperspb.String("other"))
	if fault.ReasonOf(err) != fault.RequestIDReused {
		t.Errorf("another request with the id: %v", err)
	}
	log.fail = errors.New("the log cannot be read")
	fresh := backend.Key{Operation: backend.OpCreate, ID: "fresh"}
	if _, err := do(fresh, request); fault.ReasonOf(err) != fault.SessionUnavailable || calls != 0 {
		t.Errorf("without the log: %v, %d calls", err, calls)
	}
	log.fail = nil
	if _, err := do(fresh, request); err != nil || calls != 1 {
		t.Errorf("a new request: %v, %d calls", err, calls)
	}
}

// Add implements backend.Requests.
func (l *shared) Add(r backend.Request) error {
	if l.full != nil {
		return l.full
	}
	return l.kept.Add(r)
}

// TestUnrecordedRequest: a request that can be settled is not carried out if the log does not take its beginning and another
// process could get it, too. A log of one process does not prevent it.
func TestUnrecordedRequest(t *testing.T) {
	t.Parallel()
	log := &shared{full: errors.New("no space")}
	calls := 0
	send := func(r *Runner) (proto.Message, error) {
		return do(t.Context(), r, key("", "1"), wrapperspb.String("r"), settlement(nil), func() (proto.Message, error) {
			calls++
			return wrapperspb.String("a"), nil
		})
	}
	r := logging(t, log)
	if _, err := send(r); fault.ReasonOf(err) != fault.SessionUnavailable || calls != 0 {
		t.Errorf("the request ends with %v, after %d calls", err, calls)
	}
	log.full = nil
	for range 2 {
		if _, err := send(r); err != nil || calls != 1 {
			t.Errorf("with a log that works again it ends with %v, after %d calls", err, calls)
		}
	}
	if _, err := send(logging(t, &full{})); err != nil || calls != 2 {
		t.Errorf("on a disk that is full it ends with %v, after %d calls", err, calls)
	}
}

// full is a log of this process alone, which takes nothing.
type full struct{ kept }

func (full) Add(backend.Request) error { return errors.New("no space") }

// A request may be carried out without a goroutine that waits for its end. The same request waits for it.
func TestRequestThatEndsLater(t *testing.T) {
	t.Parallel()
	request, answer := wrapperspb.String("r"), wrapperspb.String("a")
	open := errors.New("open")
	doubt := settlement(func(context.Context, []byte) (proto.Message, error) { return wrapperspb.String("settled"), nil })
	doubt.Unconfirmed = func(err error) bool { return errors.Is(err, open) }
	for name, test := range map[string]struct {
		failure error
		log     string
		again   string // the answer to the same request afterwards
		made    int    // how often it is made again
	}{
		"answered":         {nil, `begun "1" then,ended "1" true`, "a", 0},
		"failed":           {errors.New("shut"), `begun "1" then,ended "1" false`, "again", 1},
		"failed, and open": {open, `begun "1" then`, "settled", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				log := &kept{}
				s := logging(t, log)
				var end func(proto.Message, error)
				ends := 0
				start(t.Context(), s, key("", "1"), request, doubt,
					func(_ context.Context, done func(proto.Message, error)) { end = done },
					func(m proto.Message, err error) {
						if ends++; m != answer || !errors.Is(err, test.failure) {
							t.Errorf("it ends with %v, %v", m, err)
						}
					})
				made := 0
				joined := make(chan proto.Message, 1)
				go func() {
					m, _ := do(t.Context(), s, key("", "1"), request, doubt, func() (proto.Message, error) {
						made++
						return wrapperspb.String("again"), nil
					})
					joined <- m
				}()
				synctest.Wait()
				if ends > 0 || len(joined) > 0 {
					t.Fatal("the request has ended, or the same one does not wait for it")
				}
				end(answer, test.failure)
				end(answer, test.failure) // only the first end counts
				got := (<-joined).(*wrapperspb.StringValue).GetValue()
				if got != test.again || made != test.made || ends != 1 {
					t.Errorf("the same request gets %q and is made %d times, not %q and %d; %d ends",
						got, made, test.again, test.made, ends)
				}
				if written := strings.Join(log.lines, ","); !strings.HasPrefix(written, test.log) {
					t.Errorf("the log has %q, not %q", written, test.log)
				}
			})
		})
	}
}

// A request that panics can be made again in this process. The log has its start only, because it may have had effects.
func TestRequestThatPanics(t *testing.T) {
	t.Parallel()
	log, answer := &kept{}, wrapperspb.String("a")
	s := logging(t, log)
	d := settlement(nil)
	attempt := func(f func() (proto.Message, error)) (m proto.Message, panicked bool) {
		defer func() { panicked = recover() != nil }()
		m, _ = do(t.Context(), s, key("", "1"), answer, d, f)
		return m, false
	}
	if _, panicked := attempt(func() (proto.Message, error) { panic("no") }); !panicked {
		t.Error("the panic is hidden")
	}
	if got := strings.Join(log.lines, ","); got != `begun "1" then` {
		t.Errorf("the log has %q", got)
	}
	if m, _ := attempt(func() (proto.Message, error) { return answer, nil }); m != answer {
		t.Errorf("made again it is answered %v", m)
	}
}
