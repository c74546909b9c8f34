package demo

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// prompts are what the demo says. The built-in script of the offline model knows them:
// the first makes it call the demo's tool, the second the CLI's shell.
var prompts = []string{"What is the weather like in Lisbon?", "Please run `date`."}

// seen counts what the demo is there to show.
type seen struct {
	tools, permissions atomic.Int32
}

func (d *demo) talk(ctx context.Context, c *copilot.Client) error {
	s, err := c.CreateSession(ctx, copilot.SessionOptions{
		Config:       &cliv1.SessionConfig{Streaming: proto.Bool(true)},
		Tools:        []copilot.Tool{copilot.NewTool("get_weather", "Tells the weather in a city", d.weather)},
		OnPermission: d.permit,
	})
	if err != nil {
		return fmt.Errorf("create a session: %w", err)
	}
	d.screen.say("session", "%s, with a tool and a permission handler", s.ID())
	for _, prompt := range prompts {
		if err := d.turn(ctx, s, prompt); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	switch {
	case d.seen.tools.Load() == 0:
		err = errors.New("the agent never called the tool")
	case d.seen.permissions.Load() == 0:
		err = errors.New("the agent never asked for permission")
	}
	return errors.Join(err, s.Delete(ctx))
}

// turn says something and shows what comes of it.
func (d *demo) turn(ctx context.Context, s *copilot.Session, prompt string) error {
	d.screen.gap()
	d.screen.say("you", "%s", prompt)
	turn := s.Run(ctx, prompt)
	for ev, err := range turn.Events() {
		if err != nil {
			return fmt.Errorf("turn: %w", err)
		}
		d.event(ev.GetEvent())
	}
	outcome, err := turn.Outcome()
	if err == nil {
		err = outcome.Err()
	}
	return err
}

// event shows an event that tells something.
func (d *demo) event(ev *cliv1.SessionEvent) {
	switch data := ev.GetData().(type) {
	case *cliv1.SessionEvent_AssistantMessageDelta:
		d.screen.add("agent", data.AssistantMessageDelta.GetDeltaContent())
	case *cliv1.SessionEvent_ToolExecutionStart:
		start := data.ToolExecutionStart
		d.screen.say("event", "%s: %s %s", ev.GetEventType(), start.GetToolName(), start.GetArgumentsJson())
	case *cliv1.SessionEvent_ToolExecutionComplete:
		d.screen.say("event", "%s: success %t", ev.GetEventType(), data.ToolExecutionComplete.GetSuccess())
	case *cliv1.SessionEvent_SessionIdle:
		d.screen.say("event", "%s: the turn has ended", ev.GetEventType())
	}
}

// place is what the demo's tool is called with.
type place struct {
	City string `json:"city" jsonschema:"the city to look up"`
}

// weather is the demo's tool. It runs in this program, and the agent elsewhere.
func (d *demo) weather(_ context.Context, at place) (string, error) {
	d.seen.tools.Add(1)
	answer := "sunny and 24 °C in " + at.City
	d.screen.say("tool", "get_weather is called here with city %q and returns %q", at.City, answer)
	return answer, nil
}

// permit answers permission requests, for which a program would ask its user.
func (d *demo) permit(_ context.Context, req *copilot.PermissionRequest) (*copilot.Decision, error) {
	d.seen.permissions.Add(1)
	d.screen.say("asks", "%s: %s", req.Kind, wish(req.Data.GetPermissionRequest()))
	d.screen.say("answer", "approved, this once")
	return copilot.ApproveOnce(), nil
}

func wish(r *cliv1.PermissionRequest) string {
	switch {
	case r.GetShell() != nil:
		return fmt.Sprintf("may I run %q?", r.GetShell().GetFullCommandText())
	case r.GetCustomTool() != nil:
		return fmt.Sprintf("may I use the tool %q?", r.GetCustomTool().GetToolName())
	}
	return "may I?"
}
