package main

import (
	"encoding/json"
	"math/rand/v2"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// The tools of schedules: one of every session's own, and one of the participant that
// came first.
const (
	sessionTool     = "session_tool"
	participantTool = "participant_tool"
)

// flavours are the first words of prompts: they select the turn.
var flavours = []string{
	"text", "text", "text", "burst", "burst", "early", "slow", "tool", "tool", "tool", "both", "both", "input",
	"elicit", "fail", "hang",
	"break", "break",
}

// realFlavours are the flavours that the real CLI and its model can play.
var realFlavours = []string{"text", "text", "text", "burst", "slow", "tool", "tool", "both", "fail"}

// final is the flavour with which a schedule ends.
const final = "final"

// script is what a life of the fake CLI does.
func script(rng *rand.Rand, life int) fakecli.Script {
	call := func(name string) fakecli.Tool {
		return fakecli.Tool{Name: name, Arguments: json.RawMessage(`{"q":"why"}`)}
	}
	after := fakecli.Turn{Text: "That is what I was told."}
	on := func(flavour string, turns ...fakecli.Turn) fakecli.Prompt {
		return fakecli.Prompt{Match: flavour + " ", Turns: turns}
	}
	s := fakecli.Script{Prompts: []fakecli.Prompt{
		on(final, fakecli.Turn{Text: "All is well that ends."}),
		on("text", fakecli.Turn{Text: "A few words of no consequence."}),
		on("burst",
			fakecli.Turn{Deltas: &fakecli.Deltas{Count: 200 + rng.IntN(1500), Size: 1 + rng.IntN(40),
				Copies: copies(rng)}}),
		on("early", fakecli.Turn{Deltas: early(rng)}),
		on("slow", fakecli.Turn{Deltas: &fakecli.Deltas{Count: 30, Size: 20, Rate: 400}}),
		on("tool", fakecli.Turn{Text: "I ask.", Tools: []fakecli.Tool{call(sessionTool)}}, after),
		on("both", fakecli.Turn{Tools: []fakecli.Tool{call(sessionTool), call(participantTool), call(sessionTool)}},
			after),
		on("input",
			fakecli.Turn{Requests: []fakecli.Reverse{{Method: "userInput.request",
				Params: json.RawMessage(`{"question":"who?","allowFreeform":true}`)}}, Text: "So {{answer}}."}),
		on("elicit",
			fakecli.Turn{Asks: []fakecli.Event{{Type: "elicitation.requested", Data: json.RawMessage(
				`{"message":"fill in","mode":"form","requestedSchema":{"type":"object","properties":{}}}`)}},
				Text: "Thanks."}),
		on("fail", fakecli.Turn{Error: &fakecli.ModelError{Type: "query", Message: "no model today", StatusCode: 400}}),
		on("hang", fakecli.Turn{Hang: true}),
		on("break",
			fakecli.Turn{Deltas: &fakecli.Deltas{Count: 50}, Tools: []fakecli.Tool{call(sessionTool)},
				Fault: turnFault(rng)}, after),
	}}
	if life > 0 && rng.IntN(2) == 0 {
		s.Faults = []fakecli.MethodFault{methodFault(rng)}
	}
	return s
}

func copies(rng *rand.Rand) *fakecli.Copies {
	if rng.IntN(3) == 0 {
		return nil
	}
	return &fakecli.Copies{Every: 1 + rng.IntN(3), After: 1 + rng.IntN(800), PastIdle: rng.IntN(2) == 0}
}

// early is a burst in which the CLI falls behind when the bridge can know that it is one, long
// before the real CLI does it. It goes on for a while after that.
func early(rng *rand.Rand) *fakecli.Deltas {
	e := &fakecli.Early{After: 1024, LagMS: 550 + rng.IntN(250), Run: 1 + rng.IntN(40)}
	e.Every = 2*e.Run + rng.IntN(200)
	rate := one(rng, 2000, 3000, 4000)
	count := e.After + rate*(e.LagMS+100+rng.IntN(500))/1000
	return &fakecli.Deltas{Count: count, Size: 1 + rng.IntN(40), Rate: float64(rate), Early: e}
}

func one[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// turnFault strikes in the middle of a turn.
func turnFault(rng *rand.Rand) *fakecli.Fault {
	f := nonsense(rng)
	f.At = one(rng, fakecli.AtStart, fakecli.AtStream, fakecli.AtTools, fakecli.AtEnd)
	if rng.IntN(3) == 0 {
		f.Kind = fakecli.FaultExit
	}
	return &f
}

// nonsense is something that no CLI should say.
func nonsense(rng *rand.Rand) fakecli.Fault {
	f := fakecli.Fault{Kind: one(rng, fakecli.FaultGarbage, fakecli.FaultBadJSON, fakecli.FaultHugeFrame,
		fakecli.FaultHugeHeader,
		fakecli.FaultHalfFrame, fakecli.FaultClose)}
	switch f.Kind {
	case fakecli.FaultHugeFrame:
		f.Bytes = int64(1+rng.IntN(4)) << 20
	case fakecli.FaultHugeHeader:
		f.Bytes = 1 << (30 + rng.IntN(30))
	}
	return f
}

// methodFault strikes one request of the bridge.
func methodFault(rng *rand.Rand) fakecli.MethodFault {
	f := fakecli.MethodFault{
		Method: one(rng, "session.resume", "session.resume", "session.create", "session.send", "session.getMessages",
			"session.destroy",
			"session.tools.set", "session.tools.handlePendingToolCall",
			"session.permissions.handlePendingPermissionRequest", "session.abort"),
		After: rng.IntN(4), Times: 1,
		Fault: fakecli.Fault{Kind: one(rng, fakecli.FaultExit, fakecli.FaultDelay, fakecli.FaultDuplicateReply,
			fakecli.FaultUnknownReply,
			fakecli.FaultGarbage, fakecli.FaultHalfFrame, fakecli.FaultStopReading)},
	}
	f.DelayMS = rng.IntN(300)
	return f
}
