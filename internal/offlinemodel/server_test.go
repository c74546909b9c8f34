package offlinemodel

import (
	"bufio"
	"context"
	"errors"
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
	if err := server.Push(Rule{Name: "pushed", When: When{User: "b"}, Times: 1, Reply: []Step{{Text: "new"}}}); err != nil {
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
	if server.Push(Rule{}) == nil || server.SetScript(&Script{Rules: []Rule{{}}}) == nil || server.SetScript(nil) == nil {
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
		if response.StatusCode != 429 || response.Header.Get("retry-after") != "2" || response.Header.Get("x-extra") != "1" {
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

func TestGateAndOutcomes(t *testing.T) {
	t.Parallel()
	server := start(t, Options{Script: &Script{Rules: []Rule{
		{When: When{User: "gate"}, Reply: []Step{{Text: "before"}, {WaitFor: "g"}, {Text: "after"}}},
		{When: When{User: "closed"}, WaitFor: "g2", Reply: []Step{{Text: "open"}}},
		{When: When{User: "hang"}, Reply: []Step{{Text: "before"}, {Hang: true}}},
		{When: When{User: "drop"}, Reply: []Step{{Text: "before"}, {Drop: true}}},
		{When: When{User: "slow"}, Delay: 20 * time.Millisecond, Reply: []Step{
			{Wait: 20 * time.Millisecond}, {Text: "abcd", ChunkSize: 1, Delay: 5 * time.Millisecond}}},
		{When: When{User: "silence"}, Reply: []Step{{Hang: true}}},
	}}})
	body := func(user string) string {
		return fmt.Sprintf(`{"stream":true,"messages":[{"role":"user","content":%q}]}`, user)
	}
	url := server.OpenAIBaseURL() + "/chat/completions"
	outcome := func(rule string) Outcome {
		r, err := server.WaitRequest(t.Context(), func(r *Request) bool { return r.Rule == rule && r.Outcome != OutcomePending })
		if err != nil {
			t.Fatal(err)
		}
		return r.Outcome
	}

	t.Run("gate in a reply", func(t *testing.T) {
		response, err := request(t, t.Context(), "POST", url, body("gate"))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		// What was said before the gate arrives while the gate is closed.
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() && !strings.Contains(lines.Text(), "before") {
		}
		if err := server.WaitGate(t.Context(), "g"); err != nil {
			t.Fatal(err)
		}
		server.Release("g")
		server.Release("g")
		rest, _ := io.ReadAll(response.Body)
		if !strings.Contains(string(rest), "[DONE]") || outcome("rule 1") != OutcomeAnswered {
			t.Errorf("rest %s", rest)
		}
		if _, whole := fetch(t, "POST", url, body("gate")); !strings.Contains(whole, "after") {
			t.Errorf("a released gate stopped %s", whole)
		}
	})
	t.Run("gate before a reply, released over HTTP", func(t *testing.T) {
		done := make(chan string)
		go func() {
			_, text := fetch(t, "POST", url, body("closed"))
			done <- text
		}()
		if err := server.WaitGate(t.Context(), "g2"); err != nil {
			t.Fatal(err)
		}
		if status, _ := fetch(t, "POST", server.URL()+"/_offline/release?gate=g2", ""); status != 204 {
			t.Errorf("release: status %d", status)
		}
		if text := <-done; !strings.Contains(text, "open") {
			t.Errorf("answer %s", text)
		}
	})
	t.Run("hang", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		response, err := request(t, ctx, "POST", url, body("hang"))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		cancel()
		if got := outcome("rule 3"); got != OutcomeClientGone {
			t.Errorf("outcome %s", got)
		}
	})
	t.Run("drop", func(t *testing.T) {
		response, err := request(t, t.Context(), "POST", url, body("drop"))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(string(text), "before") || outcome("rule 4") != OutcomeDropped {
			t.Errorf("read %q, %v", text, err)
		}
	})
	t.Run("silence", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			response, err := request(t, ctx, "POST", url, body("silence"))
			if err == nil {
				_ = response.Body.Close()
			}
			ended <- err
		}()
		if _, err := server.WaitRequest(t.Context(), func(r *Request) bool { return r.Rule == "rule 6" }); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-ended; err == nil {
			t.Error("a reply that hangs at once had headers")
		}
		if got := outcome("rule 6"); got != OutcomeClientGone {
			t.Errorf("outcome %s", got)
		}
	})
	t.Run("slow", func(t *testing.T) {
		began := time.Now()
		_, text := fetch(t, "POST", url, body("slow"))
		if took := time.Since(began); took < 60*time.Millisecond || strings.Count(text, `"content":"`) != 5 {
			t.Errorf("took %v for %s", took, text)
		}
	})
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
	members := map[API]string{APICompletions: "choices.0.delta.content", APIResponses: "delta", APIAnthropic: "delta.text"}
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
	members := map[API]string{APICompletions: "choices.0.finish_reason", APIResponses: "status", APIAnthropic: "stop_reason"}
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
