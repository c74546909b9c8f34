package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// hookCombinations are what the steps of a turn with hooks call at once.
var hookCombinations = []string{"h", "hp", "hs", "hq", "hh", "ht"}

// hookID is the id of the request for a hook. Its links have it, too, with a number each if there are several.
func hookID(t *toolCall) string { return "h-" + t.id }

// hookOf is the request that a link of a chain belongs to; any other id is its own.
func hookOf(id string) string {
	if strings.HasPrefix(id, "h-") {
		id, _, _ = strings.Cut(id, ".")
	}
	return id
}

// said is the output of a hook.
type said struct {
	PermissionDecision, AdditionalContext string
	ModifiedArgs                          *struct{ By string }
}

// hookAnswer is what a caller answers to a hook.
func hookAnswer(n int, mark string) string {
	return `{"output":{` + []string{
		`"permissionDecision":"allow"`, `"permissionDecision":"deny"`, `"permissionDecision":"ask"`,
		fmt.Sprintf(`"modifiedArgs":{"by":%q}`, mark), fmt.Sprintf(`"additionalContext":%q`, mark), "",
		fmt.Sprintf(`"permissionDecision":"allow","modifiedArgs":{"by":%q},"additionalContext":%q`, mark, mark),
	}[n%7] + `}}`
}

// askHook has the process ask before a tool is called.
func (c *cli) askHook(t *toolCall) {
	t.stage, t.request = called, hookID(t)
	c.questions[t.request] = t
	c.pipe.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"hooks.invoke","params":{"sessionId":"s1","hookType":"preToolUse",`+
		`"input":{"toolName":"h","toolArgs":{"by":%q}}}}`, t.request, t.request))
}

// hookReplied takes the reply to a hook, whose turn may have been aborted.
func (c *cli) hookReplied(t *toolCall, answer json.RawMessage) {
	c.w.hooks = append(c.w.hooks, hookReply{t.request, answer, c.w.aborts, c.w.crashes, c.w.changes, c.w.hookHandlers()})
	if !slices.Contains(c.calls, t) {
		return
	}
	var r struct{ Output said }
	_ = json.Unmarshal(answer, &r) // what is no output has no opinion
	if t.stage = returned; r.Output.PermissionDecision == "deny" {
		t.stage = denied
	}
}

// hookReply is what the bridge has answered to a hook.
type hookReply struct {
	id                                 string
	answer                             json.RawMessage
	aborts, crashes, changes, handlers int
}

// checkHooks: the reply to a hook is what its handlers have said one after the other.
func (w *world) checkHooks() {
	if w.refused.Load() > 0 { // without room for one, it is not asked
		return
	}
	for _, r := range w.hooks {
		want, ok := w.chained(r)
		if !ok {
			continue
		}
		var got struct{ Output said }
		if err := json.Unmarshal(r.answer, &got); err != nil {
			w.fail("the reply to %s: %v: %s", r.id, err, r.answer)
			continue
		}
		a, _ := json.Marshal(want) // of texts
		if b, _ := json.Marshal(got.Output); string(a) != string(b) {
			w.fail("the reply to %s is %s, of handlers who said %s", r.id, b, a)
		}
	}
}

// chained is what the handlers of a hook have said in all, each of whom must have seen what those before it changed. It is not
// known if one of them had no end of its own.
func (w *world) chained(r hookReply) (all said, known bool) {
	var links []*asking
	for _, a := range w.order {
		if hookOf(a.p.ID) == r.id {
			links = append(links, a)
		}
	}
	args := r.id
	for i, a := range links {
		if a.p.Hook != "preToolUse" {
			w.fail("the hook %s is put as %q", a.p.ID, a.p.Hook)
		}
		var p struct {
			Input struct{ ToolArgs struct{ By string } }
		}
		if err := json.Unmarshal(a.p.Params, &p); err != nil || p.Input.ToolArgs.By != args {
			w.fail("the hook %s gets the arguments of %q, not of %q", a.p.ID, p.Input.ToolArgs.By, args)
		}
		one, ok := a.saidBy()
		if !ok {
			return all, false
		}
		before := all.PermissionDecision
		if one.PermissionDecision != "" && !(before == "ask" && one.PermissionDecision == "allow") {
			all.PermissionDecision = one.PermissionDecision
		}
		if one.ModifiedArgs != nil {
			all.ModifiedArgs, args = one.ModifiedArgs, one.ModifiedArgs.By
		}
		all.AdditionalContext = strings.Trim(all.AdditionalContext+"\n\n"+one.AdditionalContext, "\n")
		if one.PermissionDecision == "deny" && i+1 < len(links) {
			w.fail("the hook %s is put to others behind a refusal", r.id)
		}
	}
	handlers := r.handlers
	if len(links) > 0 && (links[0].changes != r.changes || links[0].handlers != handlers) {
		return all, true // who handles it has changed meanwhile
	}
	if handlers != unknown && len(links) != handlers && all.PermissionDecision != "deny" {
		w.fail("the hook %s is put to %d of %d handlers", r.id, len(links), handlers)
	}
	return all, true
}

// saidBy is what the handler of a link has said, or what stands for it.
func (a *asking) saidBy() (one said, known bool) {
	switch {
	case a.unanswered:
		return said{PermissionDecision: "deny"}, true
	case !a.answeredOnce:
		return one, false
	}
	for _, given := range a.answers {
		if given.over && given.err == nil {
			var r struct{ Output said }
			_ = json.Unmarshal([]byte(given.text), &r) // a caller's answer
			return r.Output, true
		}
	}
	return one, a.abstained[a.p.For] // it has no opinion
}

// giverOf is who answers a link of a chain: mostly the one that it is put to.
func giverOf(p *callback.Pending, n int, by string) string {
	switch {
	case p.For == roster.Itself:
		return ""
	case p.For == roster.Everybody || n%6 == 5:
		return by
	}
	return p.For
}
