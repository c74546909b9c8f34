package callback

import (
	"encoding/json"
	"fmt"
)

// fixed is a fallback that is always the same.
func fixed(members string) func(*Pending, Why) Reply {
	return func(*Pending, Why) Reply { return Reply{Members: json.RawMessage(members)} }
}

// toolFallback fails the tool call with a text that tells the model why.
func toolFallback(p *Pending, why Why) Reply {
	return Reply{Members: mustJSON(map[string]any{"result": map[string]any{
		"textResultForLlm": fmt.Sprintf("The tool %q gave no result: %s.", p.Tool, why.text()),
		"resultType":       "failure",
		"error":            why.text(),
	}})}
}

// commandFallback ends a command with an error.
func commandFallback(_ *Pending, why Why) Reply {
	return Reply{Members: mustJSON(map[string]any{"error": why.text()})}
}

// errorFallback answers a request with an error.
func errorFallback(p *Pending, why Why) Reply {
	return Reply{Error: &ReplyError{Code: DefaultErrorCode, Message: p.Kind.Method + ": " + why.text()}}
}

// hookFallback refuses what a hook before a tool was to judge, and has no opinion in
// all other hooks: what nobody looked at is not let through.
func hookFallback(p *Pending, why Why) Reply { return HookFailure(p, "hook not answered: "+why.text()) }

// HookFailure answers a hook whose handler failed: the CLI would take an error for
// consent. That of preMcpToolCall it takes for consent as well, whatever the answer: 1.0.81
// to 1.0.102 cannot be kept from the call there, only by preToolUse before.
func HookFailure(p *Pending, reason string) Reply {
	var call struct {
		HookType string `json:"hookType"`
	}
	if err := json.Unmarshal(p.Params, &call); err == nil && call.HookType != "preToolUse" && call.HookType != "preMcpToolCall" {
		return Reply{Members: json.RawMessage(`{}`)}
	}
	return Reply{Members: mustJSON(map[string]any{"output": map[string]any{
		"permissionDecision":       "deny",
		"permissionDecisionReason": reason,
	}})}
}

// unchangedSections gives the sections of a system message back as they came.
func unchangedSections(p *Pending, why Why) Reply {
	var call struct {
		Sections json.RawMessage `json:"sections"`
	}
	if err := json.Unmarshal(p.Params, &call); err != nil || call.Sections == nil {
		return errorFallback(p, why)
	}
	return Reply{Members: mustJSON(map[string]any{"sections": call.Sections})}
}

// mustJSON encodes what cannot fail to encode: maps of strings and raw JSON that has
// been parsed.
func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
