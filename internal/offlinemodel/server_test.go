package offlinemodel

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func says(text string) *Script { return &Script{Default: &Rule{Reply: []Step{{Text: text}}}} }

func TestRulesInOrder(t *testing.T) {
	t.Parallel()
	server := start(t, Options{Script: &Script{
		Rules: []Rule{
			{When: When{User: "a"}, Times: 2, Reply: []Step{{Text: "first"}}},
			{When: When{User: "a"}, Reply: []Step{{Text: "then"}}},
		},
		Default: &Rule{Reply: []Step{{Text: "else {{user}}"}}},
	}})
	for i, want := range []string{"first", "first", "then", "then"} {
		if got := ask(t, server.Scope, "a"); got != want {
			t.Errorf("answer %d is %q, want %q", i, got, want)
		}
	}
	if got := ask(t, server.Scope, "b"); got != "else b" {
		t.Errorf("default says %q", got)
	}
	if err := server.Push(Rule{Name: "pushed", When: When{User: "b"}, Times: 1,
		Reply: []Step{{Text: "new"}}}); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, server.Scope, "b") + ask(t, server.Scope, "b"); got != "newelse b" {
		t.Errorf("pushed rule and default say %q", got)
	}
	if got := server.ModelRequests()[5].Rule; got != "pushed" {
		t.Errorf("rule %q", got)
	}
	if err := server.SetScript(says("other")); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, server.Scope, "a"); got != "other" {
		t.Errorf("after the script was replaced: %q", got)
	}
	if server.Push(Rule{}) == nil || server.SetScript(&Script{Rules: []Rule{{}}}) == nil ||
		server.SetScript(nil) == nil {
		t.Error("a broken script was taken")
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	failure := &Failure{Status: 429, Message: "slow down", Code: "limited", RetryAfter: 1500 * time.Millisecond}
	server := start(t, Options{Script: &Script{Rules: []Rule{{
		When: When{User: "hi"}, Error: failure, Headers: map[string]string{"X-Extra": "1"},
	}}}})
	codes := map[API]string{APICompletions: "error.code", APIResponses: "error.code", APIAnthropic: "error.type"}
	for _, test := range wireTests {
		response, err := request(t, t.Context(), "POST", server.URL()+test.path, streamed(test.body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		body := parse(t, string(text))
		if response.StatusCode != 429 || response.Header.Get("retry-after") != "2" ||
			response.Header.Get("x-extra") != "1" {
			t.Errorf("%s: status %d, headers %v", test.api, response.StatusCode, response.Header)
		}
		if lookup(body, "error.message") != "slow down" || lookup(body, codes[test.api]) != "limited" {
			t.Errorf("%s: body %s", test.api, text)
		}
		// Nothing answers another message: no default.
		status, refused := fetch(t, "POST", server.URL()+test.path, strings.ReplaceAll(test.body, "hi", "who?"))
		if status != 400 || !strings.Contains(refused, "who?") {
			t.Errorf("%s: no rule: %d %s", test.api, status, refused)
		}
	}
}

// TestBurst streams as many deltas as any client has to stand, in order.
func TestBurst(t *testing.T) {
	t.Parallel()
	const deltas = 40_000
	server := start(t, Options{Script: &Script{Default: &Rule{Reply: []Step{{Text: "{{n}} ", Repeat: deltas}}}}})
	var want strings.Builder
	for n := 1; n <= deltas; n++ {
		fmt.Fprintf(&want, "%d ", n)
	}
	members := map[API]string{APICompletions: "choices.0.delta.content", APIResponses: "delta",
		APIAnthropic: "delta.text"}
	for _, test := range wireTests {
		t.Run(string(test.api), func(t *testing.T) {
			t.Parallel()
			_, text := fetch(t, "POST", server.URL()+test.path, streamed(test.body))
			var got strings.Builder
			count := 0
			for _, e := range parseSSE(t, text) {
				if delta, _ := lookup(e.data, members[test.api]).(string); delta != "" {
					got.WriteString(delta)
					count++
				}
			}
			if count != deltas || got.String() != want.String() {
				t.Errorf("%d deltas, want %d; text right: %v", count, deltas, got.String() == want.String())
			}
		})
	}
}

func BenchmarkBurst(b *testing.B) {
	w := &eventWriter{out: bufio.NewWriterSize(io.Discard, streamBuffer)}
	to := completionsWire{}.stream(w, reply{id: "x", model: "m"})
	to.begin(block{kind: blockText})
	for b.Loop() {
		to.delta("word ")
	}
}

func TestFinishReasons(t *testing.T) {
	t.Parallel()
	server := start(t, Options{})
	members := map[API]string{APICompletions: "choices.0.finish_reason", APIResponses: "status",
		APIAnthropic: "stop_reason"}
	want := map[API][]string{
		APICompletions: {"stop", "length", "tool_calls", "content_filter"},
		APIResponses:   {"completed", "incomplete", "completed", "incomplete"},
		APIAnthropic:   {"end_turn", "max_tokens", "tool_use", "refusal"},
	}
	for i, reason := range finishReasons {
		script := says("x")
		script.Default.FinishReason = reason
		if err := server.SetScript(script); err != nil {
			t.Fatal(err)
		}
		for _, test := range wireTests {
			_, text := fetch(t, "POST", server.URL()+test.path, test.body)
			if got := lookup(parse(t, text), members[test.api]); got != want[test.api][i] {
				t.Errorf("%s is %v on %s", reason, got, test.api)
			}
		}
	}
}
