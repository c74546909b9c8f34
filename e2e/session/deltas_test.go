package session

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// TestManyDeltas has the model say tens of thousands of pieces without a pause. The CLI
// then sends many of them twice and out of order; the client is to see each once, in
// order. It is alone with its CLI, for which this is a lot of work.
func TestManyDeltas(t *testing.T) {
	n := 40_000
	if testing.Short() {
		n = 20_000
	}
	// Room for all of them: a client that lags on a loaded machine is not what is tested.
	roomy := harness.HostConfig{Change: func(c *app.Config) { c.MaxEphemeralBytes = 128 << 20 }}
	st := harness.NewOwnScripted(t, roomy, harness.OnUser("burst", offlinemodel.Step{Text: "{{n}} ", Repeat: n}))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s := st.Create(copilot.SessionOptions{})
	turn := s.Run(ctx, "burst")
	next := 1
	ids := make(map[string]bool, n)
	var position = s.Position()
	for ev, err := range turn.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if copilot.ComparePositions(ev.GetPosition(), position) <= 0 {
			t.Fatalf("position %v after %v", ev.GetPosition(), position)
		}
		position = ev.GetPosition()
		d := ev.GetEvent().GetAssistantMessageDelta()
		if d == nil {
			continue
		}
		if ids[ev.GetEvent().GetId()] {
			t.Fatalf("event %s came twice", ev.GetEvent().GetId())
		}
		ids[ev.GetEvent().GetId()] = true
		for _, word := range strings.Fields(d.GetDeltaContent()) {
			if word != strconv.Itoa(next) {
				t.Fatalf("after %d comes %q", next-1, word)
			}
			next++
		}
	}
	if next != n+1 {
		t.Errorf("%d pieces came, want %d", next-1, n)
	}
	out, err := turn.Outcome()
	if err != nil || out.Err() != nil {
		t.Fatalf("outcome %v, %v", out, err)
	}
	if got := len(strings.Fields(out.Text())); got != n {
		t.Errorf("the whole message has %d pieces, want %d", got, n)
	}
}
