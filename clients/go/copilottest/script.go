package copilottest

import (
	"encoding/json"
	"maps"
)

// Step is a step of a reply: [Text], [ToolCall] or [WaitFor], or any other of
// docs/offline-model.md.
type Step map[string]any

// Text sends text. "{{user}}" and "{{tool_result}}" are replaced.
func Text(text string) Step { return Step{"text": text} }

// ToolCall calls a tool. The arguments are anything that encodes to a JSON object; nil for none.
func ToolCall(name string, arguments any) Step {
	call := map[string]any{"name": name}
	if arguments != nil {
		call["arguments"] = arguments
	}
	return Step{"tool_call": call}
}

// WaitFor waits for [Server.Release].
func WaitFor(gate string) Step { return Step{"wait_for": gate} }

// Rule answers requests to the model. Its methods return a changed copy.
type Rule struct {
	when  map[string]any
	reply []Step
	more  map[string]any
}

// Reply is a rule that answers every request with these steps.
func Reply(steps ...Step) Rule { return Rule{reply: steps} }

// Say is a rule that answers every request with a text, as of [Text].
func Say(text string) Rule { return Reply(Text(text)) }

// Call is two rules: the model answers prompts that contain a text with the call of a tool, and
// the tool's result with another text, as of [Text].
func Call(user, tool string, arguments any, then string) []Rule {
	return []Rule{Reply(ToolCall(tool, arguments)).WhenUser(user), Say(then).WhenToolResult(tool)}
}

// WhenUser limits the rule to new prompts that contain a text.
func (r Rule) WhenUser(text string) Rule { return r.When("user", text) }

// WhenToolResult limits the rule to new results of a tool.
func (r Rule) WhenToolResult(tool string) Rule {
	return r.When("tool_result", map[string]any{"name": tool})
}

// When adds a condition of docs/offline-model.md.
func (r Rule) When(condition string, value any) Rule {
	r.when = with(r.when, condition, value)
	return r
}

// Times limits how often the rule is used.
func (r Rule) Times(n int) Rule { return r.With("times", n) }

// With sets another key of the rule, such as name or delay.
func (r Rule) With(key string, value any) Rule {
	r.more = with(r.more, key, value)
	return r
}

func with(m map[string]any, key string, value any) map[string]any {
	m = maps.Clone(m)
	if m == nil {
		m = make(map[string]any, 1)
	}
	m[key] = value
	return m
}

// script is the text of a script, as JSON, which is YAML. Prompts that no rule matches are repeated.
func script(rules []Rule) ([]byte, error) {
	all := make([]map[string]any, 0, len(rules))
	for _, r := range rules {
		rule := map[string]any{"reply": r.reply}
		if len(r.when) > 0 {
			rule["when"] = r.when
		}
		maps.Copy(rule, r.more)
		all = append(all, rule)
	}
	whole := map[string]any{"default": map[string]any{"reply": []Step{Text("You said: {{user}}")}}}
	if len(all) > 0 {
		whole["rules"] = all
	}
	return json.Marshal(whole)
}
