package idempotency_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
)

// A caller that does not wait carries out what nobody has asked for before. All else is left to DoOrSettle.
func TestBegin(t *testing.T) {
	t.Parallel()
	request, answer := wrapperspb.String("r"), wrapperspb.String("a")
	open := errors.New("open")
	doubt := idempotency.Doubt{
		Since:  func() []byte { return []byte("then") },
		Settle: func([]byte) (proto.Message, error) { return wrapperspb.String("settled"), nil },
		Open:   func(err error) bool { return errors.Is(err, open) },
	}
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
				s := idempotency.New(time.Now, nil)
				s.Keep(log)
				b := s.Begin(key("", "1"), request, doubt)
				if b == nil || s.Begin(key("", "1"), request, doubt) != nil {
					t.Fatal("a request is begun twice, or not at all")
				}
				made := 0
				joined := make(chan proto.Message, 1)
				go func() {
					m, _ := s.DoOrSettle(t.Context(), key("", "1"), request, doubt, func() (proto.Message, error) {
						made++
						return wrapperspb.String("again"), nil
					})
					joined <- m
				}()
				synctest.Wait()
				b.Record()
				synctest.Wait()
				if len(joined) > 0 {
					t.Fatal("the same request does not wait for it")
				}
				b.End(answer, test.failure)
				got := (<-joined).(*wrapperspb.StringValue).GetValue()
				if got != test.again || made != test.made {
					t.Errorf("the same request gets %q and is made %d times, not %q and %d",
						got, made, test.again, test.made)
				}
				if written := strings.Join(log.lines, ","); !strings.HasPrefix(written, test.log) {
					t.Errorf("the log has %q, not %q", written, test.log)
				}
			})
		})
	}
}

func TestBeginLeavesToOthers(t *testing.T) {
	t.Parallel()
	request := wrapperspb.String("r")
	s := idempotency.New(time.Now, func(string) (own, all idempotency.Quota) {
		return idempotency.Quota{Requests: 4, Bytes: 1 << 20}, idempotency.Quota{Requests: 100, Bytes: 1 << 20}
	})
	s.Remember(slices.Values([]idempotency.Remembered{
		{Key: key("", "answered"), Expires: time.Now().Add(time.Hour), Answer: request},
		{Key: key("", "in doubt"), Expires: time.Now().Add(time.Hour)},
	}))
	for id, why := range map[string]string{
		"": "it has no id", strings.Repeat("x", idempotency.MaxIDLength+1): "its id is too long",
		"answered": "it has been answered", "in doubt": "its outcome is unknown",
		"new": "the quota of its kind is used up",
	} {
		if s.Begin(key("", id), request, idempotency.Doubt{}) != nil {
			t.Errorf("a request is begun although %s", why)
		}
	}
	if s.Begin(key("another", "new"), request, idempotency.Doubt{}) == nil {
		t.Error("the request of another tenant is not begun")
	}
}

// A request that panics can be made again in this process. The log has its start only, because it may have had effects.
func TestRequestThatPanics(t *testing.T) {
	t.Parallel()
	log, answer := &kept{}, wrapperspb.String("a")
	s := idempotency.New(time.Now, nil)
	s.Keep(log)
	d := idempotency.Doubt{Since: func() []byte { return []byte("then") }}
	do := func(f func() (proto.Message, error)) (m proto.Message, panicked bool) {
		defer func() { panicked = recover() != nil }()
		m, _ = s.DoOrSettle(t.Context(), key("", "1"), answer, d, f)
		return m, false
	}
	if _, panicked := do(func() (proto.Message, error) { panic("no") }); !panicked {
		t.Error("the panic is hidden")
	}
	if got := strings.Join(log.lines, ","); got != `begun "1" then` {
		t.Errorf("the log has %q", got)
	}
	if m, _ := do(func() (proto.Message, error) { return answer, nil }); m != answer {
		t.Errorf("made again it is answered %v", m)
	}
}
