package offlinemodel

import (
	"net/http"
	"strings"
	"testing"
)

// The same conversation in all wire APIs: a question with an image, two calls,
// their results.
const (
	toolCompletions = `{"model":"m","messages":[
		{"role":"system","content":"be kind"},
		{"role":"user","content":"<current_datetime>now</current_datetime>\n\nearlier"},
		{"role":"assistant","content":"yes"},
		{"role":"user","content":[{"type":"text","text":"<a_notice>x</a_notice>\nfly to 2 towns\n\n<tagged_files>\n* f\n</tagged_files>"},
			{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]},
		{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[
			{"id":"c1","type":"function","function":{"name":"go","arguments":"{\"to\":1}"}},
			{"id":"c2","type":"function","function":{"name":"stay","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"gone"},
		{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"stayed"}]}],
		"tools":[{"type":"function","function":{"name":"go","description":"d","parameters":{"a":1}}},{"type":"function","function":{"name":"stay"}}]}`
	toolResponses = `{"model":"m","instructions":"be kind","input":[
		{"role":"user","content":"<current_datetime>now</current_datetime>\n\nearlier"},
		{"type":"message","role":"assistant","content":[{"type":"output_text","text":"yes"}]},
		{"type":"message","role":"user","content":[{"type":"input_text","text":"<a_notice>x</a_notice>\nfly to 2 towns\n\n<tagged_files>\n* f\n</tagged_files>"},
			{"type":"input_image","image_url":"data:image/png;base64,aGk="}]},
		{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},
		{"type":"function_call","call_id":"c1","name":"go","arguments":"{\"to\":1}"},
		{"type":"function_call","call_id":"c2","name":"stay","arguments":"{}"},
		{"type":"function_call_output","call_id":"c1","output":"gone"},
		{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"stayed"}]}],
		"tools":[{"type":"function","name":"go","description":"d","parameters":{"a":1}},{"type":"function","name":"stay"}]}`
	toolAnthropic = `{"model":"m","system":[{"type":"text","text":"be kind"}],"messages":[
		{"role":"user","content":"<current_datetime>now</current_datetime>\n\nearlier"},
		{"role":"assistant","content":[{"type":"text","text":"yes"}]},
		{"role":"user","content":[{"type":"text","text":"<a_notice>x</a_notice>\nfly to 2 towns\n\n<tagged_files>\n* f\n</tagged_files>"},
			{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}]},
		{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},
			{"type":"tool_use","id":"c1","name":"go","input":{"to":1}},{"type":"tool_use","id":"c2","name":"stay","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"gone"},
			{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"stayed"}]}]}],
		"tools":[{"name":"go","description":"d","input_schema":{"a":1}},{"name":"stay"}]}`
)

var conversations = map[API]string{
	APICompletions: toolCompletions, APIResponses: toolResponses, APIAnthropic: toolAnthropic,
}

// TestDecode reads the same conversation out of every wire API.
func TestDecode(t *testing.T) {
	t.Parallel()
	for api, body := range conversations {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			r := &Request{API: api, Body: []byte(body)}
			if err := r.decode(); err != nil {
				t.Fatal(err)
			}
			if r.Model != "m" || r.System != "be kind" || r.Turn() != 2 || r.UserText() != "fly to 2 towns" {
				t.Errorf("model %q, system %q, turn %d, user %q", r.Model, r.System, r.Turn(), r.UserText())
			}
			if images := r.Images(); len(images) != 1 || images[0].MediaType != "image/png" ||
				string(images[0].Data) != "hi" {
				t.Errorf("images %+v", images)
			}
			if len(r.Tools) != 2 || r.Tools[0].Name != "go" || r.Tools[0].Description != "d" ||
				string(r.Tools[0].Parameters) != `{"a":1}` {
				t.Errorf("tools %+v", r.Tools)
			}
			asked := r.Messages[3]
			if len(r.Messages) != 6 || asked.Role != RoleAssistant || asked.Reasoning != "hm" ||
				len(asked.ToolCalls) != 2 ||
				asked.ToolCalls[0] != (CalledTool{"c1", "go", `{"to":1}`}) {
				t.Errorf("%d messages; calls in %+v", len(r.Messages), asked)
			}
			results := r.ToolResults()
			if len(results) != 2 || results[0].Text != "gone" || results[0].ToolName != "go" ||
				results[1].Text != "stayed" || results[1].ToolCallID != "c2" {
				t.Errorf("results %+v", results)
			}
		})
	}
}

func TestDecodeBroken(t *testing.T) {
	t.Parallel()
	for _, api := range modelAPIs {
		for _, body := range []string{"", "{", "[]", `{"messages":1,"input":1}`} {
			if err := (&Request{API: api, Body: []byte(body)}).decode(); err == nil {
				t.Errorf("%s took %q", api, body)
			}
		}
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	asking := `{"model":"m","messages":[{"role":"user","content":"fly"}]}`
	tests := []struct {
		name string
		body string
		when When
		want bool
	}{
		{"nothing asked", toolCompletions, When{}, true},
		{"user is not news", toolCompletions, When{User: "towns"}, false},
		{"user is news", asking, When{User: "fly"}, true},
		{"other user text", asking, When{User: "walk"}, false},
		{"user of a tool result", toolCompletions, When{User: "towns", ToolResult: &ToolResultCondition{}}, true},
		{"other user of a tool result", toolCompletions, When{User: "earlier", ToolResult: &ToolResultCondition{}},
			false},
		{"wrapping is not the user's", toolCompletions, When{User: "now", ToolResult: &ToolResultCondition{}}, false},
		{"regex", asking, When{UserRegex: "^f(.)y$"}, true},
		{"other regex", asking, When{UserRegex: "^x"}, false},
		{"no tool result", asking, When{ToolResult: &ToolResultCondition{}}, false},
		{"tool result by name", toolCompletions, When{ToolResult: &ToolResultCondition{Name: "stay"}}, true},
		{"tool result by id and text", toolCompletions,
			When{ToolResult: &ToolResultCondition{ID: "c1", Contains: "one"}}, true},
		{"text of another result", toolCompletions,
			When{ToolResult: &ToolResultCondition{ID: "c1", Contains: "stayed"}}, false},
		{"other tool", toolCompletions, When{ToolResult: &ToolResultCondition{Name: "run"}}, false},
		{"system", toolCompletions, When{System: "kind"}, true},
		{"other system", toolCompletions, When{System: "rude"}, false},
		{"tools", toolCompletions, When{Tools: []string{"stay", "go"}}, true},
		{"missing tool", toolCompletions, When{Tools: []string{"stay", "run"}}, false},
		{"model", asking, When{Model: "m"}, true},
		{"other model", asking, When{Model: "n"}, false},
		{"api", asking, When{API: APICompletions}, true},
		{"other api", asking, When{API: APIAnthropic}, false},
		{"path", asking, When{Path: "/openai/deployments/"}, true},
		{"other path", asking, When{Path: "/v1"}, false},
		{"header", asking, When{Header: map[string]string{"X-Test": "1"}}, true},
		{"other header", asking, When{Header: map[string]string{"X-Test": "2"}}, false},
		{"token", asking, When{Token: "secret"}, true},
		{"other token", asking, When{Token: "open"}, false},
		{"turn", toolCompletions, When{Turn: 2}, true},
		{"other turn", toolCompletions, When{Turn: 1}, false},
		{"streaming", asking, When{Streaming: &yes}, false},
		{"not streaming", asking, When{Streaming: &no}, true},
		{"body", toolCompletions, When{Body: "tagged_files"}, true},
		{"other body", toolCompletions, When{Body: "no_such_thing"}, false},
		{"old image", toolCompletions, When{Images: 1}, false},
		{"new image", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x/"}}]}]}`,
			When{Images: 1}, true},
		{"too few images",
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x/"}}]}]}`,
			When{Images: 2}, false},
		{"not", asking, When{Not: &When{Model: "n"}}, true},
		{"not not", asking, When{Not: &When{Model: "m"}}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := &Request{
				API: APICompletions, Path: "/openai/deployments/m/chat/completions", Body: []byte(test.body),
				Header: http.Header{"Authorization": {"Bearer secret"}, "X-Test": {"1"}},
			}
			if err := r.decode(); err != nil {
				t.Fatal(err)
			}
			if _, got := compileCondition(&test.when).match(r); got != test.want {
				t.Errorf("matched %v, want %v", got, test.want)
			}
			if got := test.when.empty(); got != (test.name == "nothing asked") {
				t.Errorf("empty %v", got)
			}
		})
	}
}

func TestSubstitutions(t *testing.T) {
	t.Parallel()
	r := &Request{API: APICompletions, Body: []byte(toolCompletions)}
	if err := r.decode(); err != nil {
		t.Fatal(err)
	}
	when := When{UserRegex: `fly to (\d+)`, ToolResult: &ToolResultCondition{Name: "go"}}
	found, ok := compileCondition(&when).match(r)
	if !ok {
		t.Fatal("no match")
	}
	for text, want := range map[string]string{
		"":                        "",
		"plain {text} {{":         "plain {text} {{",
		"{{user}}|{{ model }}":    "fly to 2 towns|m",
		"{{tool_result}}":         "gone",
		"{{tool_result.stay}}":    "stayed",
		"{{ .Other }} {{{user}}}": "{{ .Other }} {fly to 2 towns}",
		"{{tool_result.other}}":   "",
		"{{match.1}}{{match.9}}":  "2",
		"{{match.0}}":             "fly to 2",
		"a{{n}}b":                 "a1b",
	} {
		if err := checkText(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		got, counted := found.expand(text)
		if got != want || counted != strings.Contains(text, "{{n}}") {
			t.Errorf("%q became %q, counted %t, want %q", text, got, counted, want)
		}
	}
	for _, c := range []struct {
		arguments any
		want      string
	}{
		{nil, "{}"},
		{map[string]any{"a": []any{"{{match.1}}", uint64(1)}, "b": map[string]any{"c": "{{model}}"}},
			`{"a":["2",1],"b":{"c":"m"}}`},
		{"not json {{model}}", "not json m"},
		{"", ""},
	} {
		if err := checkArguments(c.arguments); err != nil {
			t.Errorf("%v: %v", c.arguments, err)
		}
		if got := found.arguments(c.arguments); got != c.want {
			t.Errorf("%v became %s, want %s", c.arguments, got, c.want)
		}
	}
}
