package copilot_test

import (
	"context"
	"errors"
	"fmt"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
)

// decideAll shows what a handler makes of requests of some kinds.
func decideAll(handler copilot.PermissionHandler, kinds ...string) {
	for _, kind := range kinds {
		decision, err := handler(context.Background(), &copilot.PermissionRequest{Kind: kind})
		switch {
		case errors.Is(err, copilot.ErrAbstain):
			fmt.Printf("%s: left to others\n", kind)
		case err != nil:
			fmt.Printf("%s: denied, since %v\n", kind, err)
		case decision.GetReject() != nil:
			fmt.Printf("%s: rejected: %s\n", kind, decision.GetReject().GetFeedback())
		case decision.GetApproveOnce() != nil:
			fmt.Printf("%s: approved\n", kind)
		}
	}
}

// For sandboxes and tests.
func ExampleApproveAll() {
	decideAll(copilot.ApproveAll, "shell", "write")
	// Output:
	// shell: approved
	// write: approved
}

// For an agent that may only talk.
func ExampleDenyAll() {
	decideAll(copilot.DenyAll, "shell", "write")
	// Output:
	// shell: rejected: Permission denied.
	// write: rejected: Permission denied.
}

// A rule leaves to others what it says nothing of.
func ExampleApproveKinds() {
	decideAll(copilot.ApproveKinds("read", "url"), "read", "shell")
	// Output:
	// read: approved
	// shell: left to others
}

// Rules in a row: the first that does not abstain decides.
func ExampleFirstOf_rules() {
	noNetwork := func(_ context.Context, req *copilot.PermissionRequest) (*copilot.Decision, error) {
		if req.Kind == "url" || req.Kind == "mcp" {
			return copilot.Reject("There is no network."), nil
		}
		return nil, copilot.ErrAbstain
	}
	decideAll(copilot.FirstOf(noNetwork, copilot.ApproveKinds("read"), copilot.DenyAll), "url", "read", "shell")
	// Output:
	// url: rejected: There is no network.
	// read: approved
	// shell: rejected: Permission denied.
}

// The model's schema follows from the type of the arguments.
func ExampleNewTool_schema() {
	type args struct {
		City string `json:"city" jsonschema:"where"`
		Days int    `json:"days,omitempty" jsonschema:"how far ahead; default: today"`
	}
	tool := copilot.NewTool("weather", "Forecasts the weather", func(_ context.Context, a args) (string, error) {
		return "sunny in " + a.City, nil
	})
	fmt.Println(tool.Definition.GetName(), tool.Definition.GetParametersJson())
	result, err := tool.Handler(context.Background(), []byte(`{"city": "Bern"}`))
	fmt.Println(result, err)
	// Output:
	// weather {"type":"object","properties":{"city":{"type":"string","description":"where"},"days":{"type":"integer","description":"how far ahead; default: today"}},"required":["city"],"additionalProperties":false}
	// sunny in Bern <nil>
}
