package session

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// askHooks asks all who handle a hook, one after the other in the order they came, each
// with what those before it changed. A refusal ends it.
func (d *Callbacks) askHooks(ctx context.Context, id string, params json.RawMessage) (json.RawMessage, error) {
	call, err := jsonobj.Parse(params)
	if err != nil {
		return nil, &rpcconn.Error{Code: codeInternal, Message: "hooks.invoke: parameters are not an object"}
	}
	hook := call.String("hookType")
	d.s.mu.Lock()
	who := d.s.roster.HookOrder(hook, d.s.settings.State.Handling)
	elsewhere := d.s.participants.wantsMethod(callback.HooksInvoke)
	d.s.mu.Unlock()
	if len(who) == 0 && elsewhere {
		return json.RawMessage(`{}`), nil // only hooks of other types are of interest
	}
	if len(who) <= 1 {
		only := roster.Everybody
		if len(who) == 1 {
			only = who[0]
		}
		return d.ask(ctx, &callback.Pending{ID: id, Kind: callback.ForRequest(callback.HooksInvoke), Params: params, Hook: hook, For: only})
	}
	var out jsonobj.Object
	for i, participant := range who {
		p := &callback.Pending{
			ID: fmt.Sprintf("%s.%d", id, i), Kind: callback.ForRequest(callback.HooksInvoke),
			Params: call.JSON(), Hook: hook, For: participant,
		}
		answer, err := d.ask(ctx, p)
		if ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			// An error of one says nothing for a hook that only looks on, and refuses
			// where a hook is there to refuse.
			answer = p.Kind.Fallback(p, callback.Unhandled).Members
		}
		said := hookOutput(answer)
		out = chain(out, said)
		if refuses(said) {
			break
		}
		call = carry(call, hook, said)
	}
	if len(out) == 0 {
		return json.RawMessage(`{}`), nil
	}
	return jsonobj.Object{{Key: "output", Value: out.JSON()}}.JSON(), nil
}

// hookOutput is the output in an answer to hooks.invoke; nil is no opinion.
func hookOutput(answer json.RawMessage) jsonobj.Object {
	result, err := jsonobj.Parse(answer)
	if err != nil {
		return nil
	}
	out, err := jsonobj.Parse(result.Get("output"))
	if err != nil {
		return nil
	}
	return out
}

// refuses reports whether an output ends the matter.
func refuses(out jsonobj.Object) bool {
	return out.String("permissionDecision") == "deny" || out.String("decision") == "block"
}

// chain merges a hook's output over the outputs of the earlier handlers. The last handler's members win, but no
// handler can allow a call that another handler wants to ask the user about. Additional contexts are joined.
func chain(before, said jsonobj.Object) jsonobj.Object {
	out := before.Merge(said)
	if before.String("permissionDecision") == "ask" && said.String("permissionDecision") == "allow" {
		out.SetString("permissionDecision", "ask")
		out.Set("permissionDecisionReason", before.Get("permissionDecisionReason"))
	}
	if a, b := before.String("additionalContext"), said.String("additionalContext"); a != "" && b != "" {
		out.SetString("additionalContext", a+"\n\n"+b)
	}
	return out
}

// changes says which member of a hook's input an output replaces.
var changes = map[string][2]string{
	"preToolUse":            {"modifiedArgs", "toolArgs"},
	"preMcpToolCall":        {"metaToUse", "_meta"},
	"postToolUse":           {"modifiedResult", "toolResult"},
	"userPromptSubmitted":   {"modifiedPrompt", "prompt"},
	"userPromptTransformed": {"modifiedTransformedPrompt", "transformedPrompt"},
}

// carry gives the next handler the input as an output left it.
func carry(call jsonobj.Object, hook string, said jsonobj.Object) jsonobj.Object {
	change, ok := changes[hook]
	value := said.Get(change[0])
	if !ok || value == nil {
		return call
	}
	input, err := jsonobj.Parse(call.Get("input"))
	if err != nil {
		return call
	}
	input.Set(change[1], value)
	call = call.Clone()
	call.Set("input", input.JSON())
	return call
}
