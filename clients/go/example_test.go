package copilot_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// A session with a tool, from the first line to the last.
func Example() {
	ctx := context.Background()
	c, err := copilot.Dial(ctx, "unix:///run/copilot-grpc.sock")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	type args struct {
		City string `json:"city" jsonschema:"the city to look up"`
	}
	weather := copilot.NewTool("weather", "Tells the weather in a city",
		func(_ context.Context, a args) (string, error) { return "sunny in " + a.City, nil })

	s, err := c.CreateSession(ctx, copilot.SessionOptions{
		Config:       &cliv1.SessionConfig{Model: proto.String("gpt-5")},
		Tools:        []copilot.Tool{weather},
		OnPermission: copilot.ApproveAll,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	out, err := s.SendAndWait(ctx, "Do I need an umbrella in Oslo?", copilot.WithIdleTimeout(time.Minute))
	if err == nil {
		err = out.Err()
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.Text())
}

// A turn, event by event.
func ExampleSession_Run() {
	var (
		ctx context.Context
		s   *copilot.Session
	)
	turn := s.Run(ctx, "Tidy up the README.")
	for ev, err := range turn.Events() {
		if err != nil {
			log.Fatal(err)
		}
		switch data := ev.GetEvent().GetData().(type) {
		case *cliv1.SessionEvent_AssistantMessageDelta:
			fmt.Print(data.AssistantMessageDelta.GetDeltaContent())
		case *cliv1.SessionEvent_ToolExecutionStart:
			fmt.Printf("\n[%s]\n", data.ToolExecutionStart.GetToolName())
		}
	}
	out, err := turn.Outcome()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("\n", out.Status())
}

// All that happens in a session, from any place, over restarts of this program too.
func ExampleSession_Events() {
	var (
		ctx   context.Context
		s     *copilot.Session
		saved *bridgev1.Position
	)
	for ev, err := range s.Events(ctx, copilot.After(saved), copilot.OfTypes("assistant.*", "tool.*")) {
		var gap *copilot.GapError
		switch {
		case errors.As(err, &gap):
			fmt.Println("missing:", gap)
			continue
		case err != nil:
			log.Fatal(err)
		}
		fmt.Println(ev.GetEvent().GetEventType())
		saved = ev.GetPosition()
	}
}

// A tool that tells the agent what went wrong.
func ExampleNewTool() {
	type args struct {
		Path  string `json:"path" jsonschema:"the file, relative to the project"`
		Lines int    `json:"lines,omitempty" jsonschema:"how many lines; default: all"`
	}
	_ = copilot.NewTool("read_note", "Reads one of the user's notes",
		func(ctx context.Context, a args) (*copilot.ToolResult, error) {
			call, _ := copilot.CallFrom(ctx)
			log.Printf("tool call %s in session %s", call.ToolCallID, call.SessionID)
			text, err := os.ReadFile(a.Path)
			if errors.Is(err, os.ErrNotExist) {
				return copilot.Failure("There is no such note."), nil
			}
			if err != nil {
				return nil, err // the agent only learns that the tool failed
			}
			return &copilot.ToolResult{TextResultForLlm: string(text)}, nil
		}, copilot.SkipPermission())
}

// Rules first, then a person.
func ExampleFirstOf() {
	ask := func(_ context.Context, req *copilot.PermissionRequest) (*copilot.Decision, error) {
		shell := req.Data.GetPermissionRequest().GetShell()
		if shell == nil {
			return copilot.Reject("Only reading and shell commands are allowed."), nil
		}
		fmt.Printf("Run %q? [y/N] ", shell.GetFullCommandText())
		var reply string
		if _, err := fmt.Scanln(&reply); err != nil || reply != "y" {
			return copilot.Reject("The user said no."), nil
		}
		return copilot.ApproveOnce(), nil
	}
	_ = copilot.SessionOptions{OnPermission: copilot.FirstOf(copilot.ApproveKinds("read"), ask)}
}

// A callback without a separate field: sections of the system message, where Config has
// them transformed.
func ExampleHandle() {
	_ = copilot.SessionOptions{Handlers: []copilot.Handler{copilot.Handle(
		func(_ context.Context, r *cliv1.CallbackSystemMessageServiceTransformRequest) (*cliv1.CallbackSystemMessageServiceTransformResponse, error) {
			sections := r.GetSections()
			sections["tone"] = &cliv1.SystemMessageSectionText{Content: "Be brief."}
			return &cliv1.CallbackSystemMessageServiceTransformResponse{Sections: sections}, nil
		}),
	}}
}

// A permission request answered by another program, or in another life of this one.
func ExampleSession_Resolve() {
	var (
		ctx context.Context
		c   *copilot.Client
	)
	s := c.Session("review-42")
	pending, err := s.Pending(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, cb := range pending {
		if cb.Kind != copilot.CallbackPermission {
			continue
		}
		err := s.Resolve(ctx, cb.ID, copilot.AnswerPermission(copilot.ApproveOnce()))
		if copilot.IsReason(err, bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED) {
			continue // another participant was faster
		}
		if err != nil {
			log.Fatal(err)
		}
	}
}

// A session whose files are in a directory of this program's, and whose requests to models
// this program makes.
func ExampleSessionFS() {
	var (
		ctx context.Context
		c   *copilot.Client
	)
	files, err := copilot.OpenDirFS("state")
	if err != nil {
		log.Fatal(err)
	}
	defer files.Close() //nolint:errcheck // what was written is there
	s, err := c.CreateSession(ctx, copilot.SessionOptions{
		SessionFS:      &copilot.SessionFS{Files: files},
		ModelTransport: http.DefaultTransport,
	})
	if err != nil {
		log.Print(err)
		return
	}
	if err := s.Disconnect(ctx); err != nil { // writes the last of it
		log.Print(err)
	}
}
