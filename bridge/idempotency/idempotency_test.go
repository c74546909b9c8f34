package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
)

func TestDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := idempotency.New(time.Now)
		ctx := t.Context()
		calls := 0
		do := func(id, request string) (string, error) {
			m, err := s.Do(ctx, "Send", id, wrapperspb.String(request), func() (proto.Message, error) {
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
			{"1", "a", "a!", "", 1, 0},
			{"1", "a", "a!", "", 1, 0},
			{"1", "b", "", fault.RequestIDReused, 1, 0},
			{"2", "a", "a!", "", 2, 0},
			{"", "a", "a!", "", 3, 0},
			{"", "a", "a!", "", 4, 0},
			{"1", "a", "a!", "", 5, idempotency.Keep + time.Second},
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
		s := idempotency.New(time.Now)
		release := make(chan struct{})
		results := make(chan proto.Message, 2)
		for range 2 {
			go func() {
				m, err := s.Do(context.Background(), "Send", "1", wrapperspb.String("a"), func() (proto.Message, error) {
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
