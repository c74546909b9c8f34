package bench

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/loadcli"
)

func TestSample(t *testing.T) {
	t.Parallel()
	s := sample{3, 1, 200, 2, 10}
	if got, want := s.String(), "3.00 [1.00..200]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := percentile(s, 0.99); got != 200 {
		t.Errorf("p99 is %v, want 200", got)
	}
	if got := ratio(sample{2, 9}, sample{1, 3}); got[0] != 2 || got[1] != 3 {
		t.Errorf("ratios %v, want 2 and 3", got)
	}
	if got := (sample)(nil).String(); got != "not run" {
		t.Errorf("nothing reads %q", got)
	}
}

// The tables of the sign test have the same intervals: of 9 values the 2nd to the 8th, of 20 the 6th to the 15th.
func TestInterval(t *testing.T) {
	t.Parallel()
	numbers := func(n int) (s sample) {
		for i := range n {
			s.add(float64(n - i))
		}
		return s
	}
	for n, want := range map[int][2]float64{6: {1, 6}, 9: {2, 8}, 12: {3, 10}, 20: {6, 15}} {
		if low, high, ok := numbers(n).interval(); !ok || low != want[0] || high != want[1] {
			t.Errorf("of %d values: %v to %v, %v, want %v", n, low, high, ok, want)
		}
	}
	for n := range 6 {
		if _, _, ok := numbers(n).interval(); ok {
			t.Errorf("%d values have an interval", n)
		}
	}
	for want, s := range map[string]sample{
		"less: 0.20 to 0.90":                {0.5, 0.2, 0.3, 0.9, 0.4, 0.6},
		"more: 1.10 to 3.00":                {1.1, 2, 3, 1.5, 1.2, 1.3},
		"no difference shown: 0.90 to 1.20": {0.9, 1, 1.1, 1.2, 1, 0.95},
		"too few repeats":                   {0.1, 0.1},
	} {
		if got := s.verdict(); got != want {
			t.Errorf("%v: %q, want %q", s, got, want)
		}
	}
}

func TestDocument(t *testing.T) {
	t.Parallel()
	table := Table{Title: "T", Note: "N.", Header: []string{"a", "b"}}
	table.row("1", "2")
	want := "# All\n\n<!-- written by make x -->\n\nA machine.\n\n## T\n\nN.\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"
	if got := Document("All", "make x", "A machine.", table); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// Frames are counted by hand; the fields are the contract's.
func TestCounter(t *testing.T) {
	t.Parallel()
	event := func(message string) *bridgev1.Event {
		return &bridgev1.Event{Position: &bridgev1.Position{Epoch: 1, Seq: 2}, Event: &cliv1.SessionEvent{
			EventType: "session.info",
			Data:      &cliv1.SessionEvent_SessionInfo{SessionInfo: &cliv1.InfoData{Message: message}},
		}}
	}
	batch := func(events ...*bridgev1.Event) *bridgev1.SubscribeResponse {
		return &bridgev1.SubscribeResponse{SessionId: "s",
			Frame: &bridgev1.SubscribeResponse_Events{Events: &bridgev1.EventBatch{Events: events}}}
	}
	for name, test := range map[string]struct {
		frame *bridgev1.SubscribeResponse
		want  counter
	}{
		"two events": {batch(event("a"), event("b")), counter{events: 2}},
		"the end":    {batch(event("a"), event(loadcli.Done)), counter{events: 2, ends: 1}},
		"a gap": {&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Gap{Gap: &bridgev1.Gap{}}},
			counter{gap: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wire, err := proto.Marshal(test.frame)
			if err != nil {
				t.Fatal(err)
			}
			var got counter
			if err := got.count(wire); err != nil || got != test.want {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

// A blast is the requested number of events, each with a new id, and an end.
func TestLoadCLI(t *testing.T) {
	t.Parallel()
	const send = `{"jsonrpc":"2.0","id":7,"method":"session.send","params":{"sessionId":"s","prompt":"blast delta 300"}}`
	var out bytes.Buffer
	in := strings.NewReader(fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(send), send))
	if err := loadcli.Serve(in, &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	ids := map[string]bool{}
	for piece := range strings.SplitSeq(text, `"id":"`) {
		if len(piece) >= 36 && piece[8] == '-' {
			ids[piece[:36]] = true
		}
	}
	// user.message, 300 deltas, session.info, session.idle
	if len(ids) != 303 {
		t.Errorf("%d ids of events, want 303", len(ids))
	}
	if strings.Count(text, "assistant.message_delta") != 300 || !strings.Contains(text, loadcli.Done) ||
		!strings.Contains(text, `"id":7,"result"`) {
		t.Error("the blast is not complete")
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	const text = "processor\t: 0\nmodel name\t: A: B\nmodel name\t: C\n"
	if got := fieldOf(text, "model name"); got != "A: B" {
		t.Errorf("the model is %q", got)
	}
	if got := fieldOf(text, "model"); got != unknown {
		t.Errorf("a field that is not there is %q", got)
	}
	if got := Environment(t.Context()); !strings.Contains(got, "CPUs") || strings.Contains(got, "\n") {
		t.Errorf("the environment is %q", got)
	}
}
