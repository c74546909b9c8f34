package bridgetest

import (
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// Hanging is the script of a CLI in which the turn of the prompt "long" never ends, and that of "tool" calls the tool
// of WithTool.
var Hanging = fakecli.Script{Prompts: []fakecli.Prompt{
	{Match: "long", Turns: []fakecli.Turn{{Hang: true}}},
	{Match: "tool", Turns: []fakecli.Turn{{Tools: []fakecli.Tool{{Name: "work"}}}, {Text: "done"}}},
}}

// Asking is the script of a CLI in which the prompt "command" asks for a permission, and "question" for input.
var Asking = fakecli.Script{
	// The CLI sends the events of questions on request.
	Replies: map[string]json.RawMessage{"session.eventLog.registerInterest": json.RawMessage(`{}`)},
	Prompts: []fakecli.Prompt{
		{Match: "command", Turns: []fakecli.Turn{
			{Tools: []fakecli.Tool{{Name: "bash", Output: "ran", Permission: json.RawMessage(`{"kind":"shell"}`)}}},
			{Text: "done"},
		}},
		{Match: "question", Turns: []fakecli.Turn{{
			Requests: []fakecli.Reverse{{Method: "userInput.request", Params: json.RawMessage(`{"question":"Who?"}`)}},
			Text:     "{{answer}}",
		}}},
	},
}
