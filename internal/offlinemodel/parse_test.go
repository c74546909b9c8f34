package offlinemodel

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseErrors(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, script, want string }{
		{"unknown key", "rules:\n  - when: {user: a}\n    reply: [{text: b}]\n    tmies: 2\n",
			`s.yaml:4:5: unknown key "tmies"`},
		{"unknown nested key", "rules:\n  - when:\n      usr: a\n    reply: [{text: b}]\n",
			`s.yaml:3:7: unknown key "usr"`},
		{"unknown key in a step", "default:\n  reply:\n    - txt: b\n", `s.yaml:3:7: unknown key "txt"`},
		{"wrong type", "rules:\n  - times: many\n    reply: [{text: b}]\n", "s.yaml:2:12: "},
		{"wrong duration", "rules:\n  - delay: soon\n    reply: [{text: b}]\n",
			`s.yaml:2:12: "soon" is not a duration`},
		{"bare number", "rules:\n  - reply: [{text: a}, {wait: 5}]\n", `s.yaml:2:31: "5" is not a duration`},
		{"not YAML", "rules: [\n", "s.yaml:1:"},
		{"duplicate key", "default: {reply: [{text: a}]}\ndefault: {reply: [{text: b}]}\n", "s.yaml:2:1: "},
		{"empty rule", "rules:\n  - when: {user: a}\n", "s.yaml:2: rules[0]: a rule needs a reply or an error"},
		{"reply and error", "rules:\n  - reply: [{text: a}]\n    error: {status: 500}\n",
			"s.yaml:2: rules[0]: a rule has either"},
		{"second rule", "rules:\n  - reply: [{text: a}]\n  - times: -1\n    reply: [{text: a}]\n",
			"s.yaml:3: rules[1]: times must not"},
		{"empty step", "rules:\n  - reply:\n      - text: a\n      - repeat: 2\n",
			"s.yaml:4: rules[0].reply[1]: a step has exactly one"},
		{"two kinds of step", "default:\n  reply:\n    - text: a\n      hang: true\n",
			"s.yaml:3: default.reply[0]: a step has exactly one"},
		{"repeated call", "default:\n  reply: [{tool_call: {name: a}, repeat: 2}]\n",
			"only text and reasoning can be repeated"},
		{"paced wait", "default:\n  reply: [{wait: 1s, delay: 1s}]\n", "chunk_size and delay belong to"},
		{"nameless call", "default:\n  reply: [{tool_call: {arguments: {}}}]\n", "a tool call needs a name"},
		{"substitution", "default:\n  reply: [{text: 'a {{usr}}'}]\n", "unknown substitution {{usr}}"},
		{"substitution in arguments", "default:\n  reply: [{tool_call: {name: a, arguments: {b: ['{{match.x}}']}}}]\n",
			"unknown substitution {{match.x}}"},
		{"regex", "rules:\n  - when:\n      user_regex: '('\n    reply: [{text: a}]\n",
			"s.yaml:3: rules[0].when.user_regex: error parsing regexp"},
		{"api", "rules:\n  - when: {api: azure}\n    reply: [{text: a}]\n", `unknown api "azure"`},
		{"empty not", "rules:\n  - when: {not: {}}\n    reply: [{text: a}]\n", "needs at least one condition"},
		{"status", "rules:\n  - error: {status: 200}\n", "status must be 400 to 599, not 200"},
		{"finish reason", "default: {finish_reason: done, reply: [{text: a}]}\n", `unknown finish reason "done"`},
		{"default with conditions", "default: {when: {user: a}, reply: [{text: a}]}\n",
			"the default reply must not have when or times"},
		{"content type", "default: {headers: {content-type: a}, reply: [{text: a}]}\n", "content-type cannot be set"},
		{"model", "models: [{name: a}]\n", "s.yaml:1: models[0]: a model needs an id"},
		{"user", "github: {users: [{login: a}]}\n", "github.users[0]: a user needs a token"},
		{"pace", "stream: {chunk_size: -1}\n", "must not be negative"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("s.yaml", []byte(test.script))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "s.yaml:") {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestParseWhole reads a script with every kind of value in it.
func TestParseWhole(t *testing.T) {
	t.Parallel()
	got, err := Parse("s.yaml", []byte(`
stream: {chunk_size: 3, delay: 10ms}
rules:
  - name: one
    when: {user: a, header: {delay: "1"}, streaming: false, not: {model: m}}
    times: 2
    delay: 1m30s
    reply:
      - {text: "b", repeat: 4}
      - {tool_call: {name: t, arguments: {delay: 5, deep: [1, x, null, true, 1.5]}}}
      - {wait: 0.5s}
  - error: {status: 429, retry_after: 1h}
`))
	if err != nil {
		t.Fatal(err)
	}
	no := false
	want := &Script{
		Stream: Pace{ChunkSize: 3, Delay: 10 * time.Millisecond},
		Rules: []Rule{
			{
				Name: "one", Times: 2, Delay: 90 * time.Second,
				When: When{User: "a", Header: map[string]string{"delay": "1"}, Streaming: &no, Not: &When{Model: "m"}},
				Reply: []Step{
					{Text: "b", Repeat: 4},
					{ToolCall: &ToolCall{Name: "t", Arguments: map[string]any{
						"delay": uint64(5), "deep": []any{uint64(1), "x", nil, true, 1.5},
					}}},
					{Wait: 500 * time.Millisecond},
				},
			},
			{Error: &Failure{Status: 429, RetryAfter: time.Hour}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("parsed %+v, want %+v", got, want)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "script.yaml")
	if err := os.WriteFile(path, demoScript, 0o600); err != nil {
		t.Fatal(err)
	}
	script, err := Load(path)
	if err != nil || len(script.Rules) != len(Default().Rules) {
		t.Errorf("loaded %+v, %v", script, err)
	}
	if _, err := Load(path + "x"); err == nil {
		t.Error("a script was loaded from nowhere")
	}
}

// TestDocumentedExamples parses every example of the reference, and sees that
// it names every key there is.
func TestDocumentedExamples(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "offline-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.Split(string(text), "```yaml\n")[1:]
	if len(examples) < 5 {
		t.Fatalf("only %d examples", len(examples))
	}
	for _, example := range examples {
		example, _, _ = strings.Cut(example, "```")
		if _, err := Parse("example", []byte(example)); err != nil {
			t.Errorf("%v in\n%s", err, example)
		}
	}
	for _, key := range yamlKeys() {
		if !strings.Contains(string(text), "`"+key+"`") {
			t.Errorf("the reference does not describe the key %q", key)
		}
	}
}
