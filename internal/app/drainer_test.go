package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A server that stops logs how many turns it waits for and how long, and how many it gave up.
func TestStopIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // read after the server has ended
	script := fakecli.Script{Prompts: []fakecli.Prompt{
		{Match: "hang", Turns: []fakecli.Turn{{Hang: true}}}, {Turns: []fakecli.Turn{{Text: "done"}}},
	}}
	r := start(t, Config{DrainGrace: 100 * time.Millisecond}, WithRunner(fake(t, script)),
		WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	ctx, c := r.dial(t)
	for _, text := range []string{"hang", "end"} {
		s, err := c.CreateSession(ctx, copilot.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if text == "hang" {
			_, err = s.Send(ctx, text)
		} else {
			_, err = s.SendAndWait(ctx, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r.stop()
	r.end(t)
	for _, want := range []string{
		`msg="stopping: waiting for turns to end" turns=1 at_most=100ms`,
		`msg="stopping: waiting for calls to end" turns_left=1`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, &log)
		}
	}
}
