package fleet

import (
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

func TestWear(t *testing.T) {
	t.Parallel()
	limits := Wear{Age: time.Hour, RSS: 1 << 30}
	for _, test := range []struct {
		wear   Wear
		age    time.Duration
		health runtime.Health
		want   string
	}{
		{limits, time.Minute, runtime.Health{RSS: 1 << 20, Latency: time.Millisecond}, ""},
		{limits, time.Hour, runtime.Health{}, "it is 1h0m0s old"},
		{limits, 0, runtime.Health{RSS: 1 << 30}, "it has 1073741824 bytes of memory"},
		{Wear{}, 0, runtime.Health{Unanswered: maxUnanswered}, "it has not answered 2048 cancelled calls"},
		{Wear{RSS: 1}, 1000 * time.Hour, runtime.Health{Latency: time.Hour}, ""},
		{Wear{}, 1000 * time.Hour, runtime.Health{RSS: 1 << 50, Latency: time.Hour}, ""},
	} {
		if got := test.wear.of(test.age, test.health); got != test.want {
			t.Errorf("%+v of %v, %+v: %q, want %q", test.wear, test.age, test.health, got, test.want)
		}
	}
}
