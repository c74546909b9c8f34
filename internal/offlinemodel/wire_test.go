package offlinemodel

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var timestamps = regexp.MustCompile(`"(created|created_at)":\d+`)

func everything() *Script {
	return &Script{
		Stream: Pace{ChunkSize: 8},
		Rules: []Rule{{When: When{User: "hi"},
			Usage: &Usage{InputTokens: 20, OutputTokens: 9, CachedTokens: 5, ReasoningTokens: 2}, Reply: []Step{
				{Reasoning: "Let me think."},
				{Text: "Hello, "}, {Text: "\"wörld\"\n"},
				{ToolCall: &ToolCall{Name: "look",
					Arguments: map[string]any{"at": "{{user}}", "deep": []any{1, true, nil}}}},
				{ToolCall: &ToolCall{Name: "wait", ID: "mine"}},
			}}},
	}
}

// TestGolden pins the exact bytes of each wire API, streamed and not.
func TestGolden(t *testing.T) {
	t.Parallel()
	server := start(t, Options{})
	for _, test := range wireTests {
		for _, form := range []string{"sse", "json"} {
			t.Run(string(test.api)+"."+form, func(t *testing.T) {
				scope := scoped(t, server, everything())
				body := test.body
				if form == "sse" {
					body = streamed(body)
				}
				status, got := fetch(t, "POST", scope.URL()+test.path, body)
				if status != 200 {
					t.Fatalf("status %d: %s", status, got)
				}
				got = timestamps.ReplaceAllString(got, `"$1":1`)
				file := filepath.Join("testdata", string(test.api)+"."+form)
				if *update {
					if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if got != string(want) {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

// TestStreamEqualsDocument puts streams together again by the rules of each API
// and expects what a client without streaming gets.
func TestStreamEqualsDocument(t *testing.T) {
	t.Parallel()
	scripts := map[string][]Step{
		"text":            {{Text: "a rather long text in several chunks, with ünïcödé"}},
		"repeated":        {{Text: "{{n}},", Repeat: 50}},
		"reasoning first": {{Reasoning: "hm"}, {Text: "yes"}},
		"calls": {{ToolCall: &ToolCall{Name: "a"}},
			{ToolCall: &ToolCall{Name: "b", Arguments: map[string]any{"x": 1}}}},
		"text after calls": {{Text: "one"}, {ToolCall: &ToolCall{Name: "a"}}, {Text: "two"}},
		"several thoughts": {{Reasoning: "a"}, {Text: "b"}, {Reasoning: "c"}, {Text: "d"}},
	}
	assemblers := map[API]func(*testing.T, []sse) any{
		APICompletions: assembleCompletions, APIResponses: assembleResponses, APIAnthropic: assembleAnthropic,
	}
	server := start(t, Options{})
	for name, steps := range scripts {
		for _, test := range wireTests {
			t.Run(name+" "+string(test.api), func(t *testing.T) {
				t.Parallel()
				script := &Script{Default: &Rule{Reply: steps, Usage: &Usage{InputTokens: 3, OutputTokens: 4}}}
				one, err := server.NewScope(t.Name()+" stream", script)
				if err != nil {
					t.Fatal(err)
				}
				other, err := server.NewScope(t.Name()+" document", script)
				if err != nil {
					t.Fatal(err)
				}
				_, stream := fetch(t, "POST", one.URL()+test.path, streamed(test.body))
				_, document := fetch(t, "POST", other.URL()+test.path, test.body)
				got := assemblers[test.api](t, parseSSE(t, timestamps.ReplaceAllString(stream, `"$1":1`)))
				want := parse(t, timestamps.ReplaceAllString(document, `"$1":1`))
				if !reflect.DeepEqual(got, want) {
					t.Errorf("assembled\n%v\ndocument\n%v", got, want)
				}
			})
		}
	}
}

func assembleCompletions(t *testing.T, events []sse) any {
	t.Helper()
	message := map[string]any{"content": nil}
	choice := map[string]any{"index": 0.0, "message": message, "logprobs": nil}
	whole := map[string]any{"choices": []any{choice}}
	var calls []any
	for i, e := range events {
		if e.data == nil {
			if i != len(events)-1 {
				t.Error("[DONE] before the end")
			}
			break
		}
		chunk := e.data.(map[string]any)
		whole["id"], whole["created"], whole["model"] = chunk["id"], chunk["created"], chunk["model"]
		whole["object"] = strings.TrimSuffix(chunk["object"].(string), ".chunk")
		if chunk["usage"] != nil {
			whole["usage"] = chunk["usage"]
			continue
		}
		if reason := lookup(chunk, "choices.0.finish_reason"); reason != nil {
			choice["finish_reason"] = reason
		}
		for key, value := range lookup(chunk, "choices.0.delta").(map[string]any) {
			switch text, _ := message[key].(string); key {
			case "role":
				message["role"] = value
			case "content", "reasoning_content":
				if value != "" {
					message[key] = text + value.(string)
				}
			case "tool_calls":
				call := value.([]any)[0].(map[string]any)
				index := int(call["index"].(float64))
				if index == len(calls) {
					delete(call, "index")
					calls = append(calls, call)
				} else {
					function := calls[index].(map[string]any)["function"].(map[string]any)
					function["arguments"] = function["arguments"].(string) + lookup(call, "function.arguments").(string)
				}
				message["tool_calls"] = calls
			}
		}
	}
	return whole
}

func assembleResponses(t *testing.T, events []sse) any {
	t.Helper()
	deltas := map[string]string{}
	for i, e := range events {
		if e.name != lookup(e.data, "type") || lookup(e.data, "sequence_number") != float64(i) {
			t.Errorf("event %d is named %q: %v", i, e.name, e.data)
		}
		item, _ := lookup(e.data, "item_id").(string)
		switch e.name {
		case "response.output_text.delta", "response.reasoning_summary_text.delta", "response.function_call_arguments.delta":
			deltas[item] += lookup(e.data, "delta").(string)
		case "response.output_text.done", "response.reasoning_summary_text.done":
			if lookup(e.data, "text") != deltas[item] {
				t.Errorf("item %s: deltas say %q, done %v", item, deltas[item], e.data)
			}
		case "response.function_call_arguments.done":
			if lookup(e.data, "arguments") != deltas[item] {
				t.Errorf("item %s: deltas say %q, done %v", item, deltas[item], e.data)
			}
		}
	}
	return lookup(events[len(events)-1].data, "response")
}

func assembleAnthropic(t *testing.T, events []sse) any {
	t.Helper()
	var whole map[string]any
	var blocks []any
	inputs := map[int]string{}
	for _, e := range events {
		if e.name != lookup(e.data, "type") {
			t.Errorf("event named %q: %v", e.name, e.data)
		}
		index, _ := lookup(e.data, "index").(float64)
		switch e.name {
		case "message_start":
			whole = lookup(e.data, "message").(map[string]any)
		case "content_block_start":
			blocks = append(blocks, lookup(e.data, "content_block"))
		case "content_block_delta":
			block := blocks[int(index)].(map[string]any)
			for key, value := range lookup(e.data, "delta").(map[string]any) {
				switch key {
				case "text", "thinking", "signature":
					block[key] = block[key].(string) + value.(string)
				case "partial_json":
					inputs[int(index)] += value.(string)
					block["input"] = parseOrNil(inputs[int(index)])
				}
			}
		case "message_delta":
			whole["stop_reason"], whole["usage"] = lookup(e.data, "delta.stop_reason"), lookup(e.data, "usage")
		}
	}
	whole["content"] = blocks
	return whole
}
