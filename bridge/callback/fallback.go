package callback

import (
	"encoding/json"
	"fmt"
)

// fixed returns a constant fallback.
func fixed(members string) func(*Pending, Why) Reply {
	return func(*Pending, Why) Reply { return Reply{Members: json.RawMessage(members)} }
}

// toolFallback fails the tool call with a text that tells the model the reason.
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

// hookFallback denies the operation for a hook that runs before a tool, and has no effect for all other hooks: an
// unchecked operation is not permitted.
func hookFallback(p *Pending, why Why) Reply { return HookFailure(p, "hook not answered: "+why.text()) }

// HookFailure answers a hook whose handler failed. An error would count as consent for the CLI. For preMcpToolCall
// the CLI treats every answer as consent: versions 1.0.81 to 1.0.102 can only be stopped by an earlier preToolUse
// hook.
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

// unchangedSections returns the sections of a system message unchanged.
func unchangedSections(p *Pending, why Why) Reply {
	var call struct {
		Sections json.RawMessage `json:"sections"`
	}
	if err := json.Unmarshal(p.Params, &call); err != nil || call.Sections == nil {
		return errorFallback(p, why)
	}
	return Reply{Members: mustJSON(map[string]any{"sections": call.Sections})}
}

// mustJSON encodes values that cannot fail: maps of strings and raw JSON that was parsed before.
func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
