package runtime

import (
	"context"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// TestQueuedMessagesOfAKilledBridge kills a bridge after the first of four messages was answered, while the second one's
// turn runs and two wait behind it. Whoever asks again gets the outcome of their own message: from the journal, or after
// the messages that waited were delivered once more.
func TestQueuedMessagesOfAKilledBridge(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.Rule{When: harness.WhenUser("Q-one"), WaitFor: "one", Reply: harness.Steps(harness.Say("A1"))},
		harness.Rule{When: harness.WhenUser("Q-two"), WaitFor: "two", Reply: harness.Steps(harness.Say("A2"))},
		harness.OnUser("Q-three", harness.Say("A3")),
		harness.Rule{When: harness.WhenUser("Q-four"), Error: &offlinemodel.Failure{Status: 400, Message: "four broke"}},
	)
	if st.Before("1.0.102") {
		t.Skip("an older CLI writes its history too late for this")
	}
	d := harness.NewDaemon(st)
	config := d.Config()
	config.Provider.ApiKey = nil // a server that starts again lacks it
	s, err := d.Client.CreateSession(d.Ctx, copilot.SessionOptions{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	id := s.ID()
	messages := []struct{ text, want string }{
		{"Q-one", "completed A1"}, {"Q-two", "runtime_lost"}, {"Q-three", "completed A3"}, {"Q-four", "failed: 400 four broke"},
	}
	for i, m := range messages {
		// The callers do not wait until the end: only the journal knows then how a turn ended.
		ctx, cancel := context.WithCancel(d.Ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = d.Client.Session(id).SendAndWait(ctx, m.text, copilot.WithRequestID(m.text))
		}()
		if i == 0 {
			st.Gate("one")
		} else {
			st.Eventually("the CLI to have "+m.text, func() bool { return len(st.All(s, "pending_messages.modified")) > i+1 })
		}
		cancel()
		<-done
	}
	st.Model.Release("one")
	st.Gate("two")
	d.Written(id)
	d.Crash()
	check := func(which ...int) {
		t.Helper()
		for _, i := range which {
			out, err := d.Client.Session(id).SendAndWait(d.Ctx, messages[i].text, copilot.WithRequestID(messages[i].text))
			if err != nil {
				t.Fatalf("%s: %v", messages[i].text, err)
			}
			got := string(out.Status())
			if out.Text() != "" {
				got += " " + out.Text()
			}
			if out.Status() == copilot.TurnFailed {
				got += ": " + out.Error().GetMessage()
			}
			if got != messages[i].want {
				t.Errorf("%s: %s, want %s", messages[i].text, got, messages[i].want)
			}
		}
	}
	check(2, 3)
	d.Crash()
	check(0, 1, 2, 3)
}
