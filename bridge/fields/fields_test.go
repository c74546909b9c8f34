package fields

import (
	"errors"
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		d    *durationpb.Duration
		want time.Duration
		bad  bool
	}{
		"unset":     {nil, 0, false},
		"least":     {durationpb.New(time.Second), time.Second, false},
		"most":      {durationpb.New(time.Minute), time.Minute, false},
		"too short": {durationpb.New(time.Second - 1), 0, true},
		"too long":  {durationpb.New(time.Minute + 1), 0, true},
		"invalid":   {&durationpb.Duration{Seconds: 2, Nanos: -1}, 0, true},
		"overflow":  {&durationpb.Duration{Seconds: math.MaxInt64}, 0, true},
	} {
		got, err := Duration(test.d, "wait", time.Second, time.Minute)
		if got != test.want || (err != nil) != test.bad {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if f, ok := AsFault(err); test.bad && (!ok || f.Reason != fault.InvalidField || f.Field != "wait") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKnown(t *testing.T) {
	t.Parallel()
	for _, e := range []bridgev1.StreamStart{bridgev1.StreamStart_STREAM_START_UNSPECIFIED, bridgev1.StreamStart_STREAM_START_END, -1, 99} {
		err := Known(e, "start")
		if _, defined := bridgev1.StreamStart_name[int32(e)]; defined != (err == nil) {
			t.Errorf("%d: %v", e, err)
		}
		if f, ok := AsFault(err); err != nil && (!ok || f.Field != "start") {
			t.Errorf("%d: %v", e, err)
		}
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	at := func(field string) error { return fault.New(fault.InvalidField, "no").WithField(field) }
	plain := errors.New("no")
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"prefixed":          {Within(at("config.model"), "create."), "create.config.model"},
		"without a field":   {Within(fault.New(fault.InvalidField, "no"), "create."), ""},
		"renamed":           {Rename(at("session_id"), "session_id", "join_session_id"), "join_session_id"},
		"a prefix renamed":  {Rename(at("log.url"), "log.", ""), "url"},
		"of another prefix": {Rename(at("url"), "log.", ""), "url"},
	} {
		if f, ok := AsFault(test.err); !ok || f.Field != test.want {
			t.Errorf("%s: %v", name, test.err)
		}
	}
	if Within(plain, "at.") != plain || Rename(plain, "", "at") != plain || Within(nil, "at.") != nil {
		t.Error("an error that is no fault changes")
	}
}
