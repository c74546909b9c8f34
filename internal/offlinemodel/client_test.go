package offlinemodel

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Paths and request bodies of the three wire APIs.
var (
	completionsBody = `{"model":"m","messages":[{"role":"system","content":"be kind"},{"role":"user","content":"hi"}]}`
	responsesBody   = `{"model":"m","instructions":"be kind","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}]}`
	anthropicBody   = `{"model":"m","system":"be kind","messages":[{"role":"user","content":"hi"}]}`
)

var wireTests = []struct {
	api        API
	path, body string
}{
	{APICompletions, "/v1/chat/completions", completionsBody},
	{APIResponses, "/v1/responses", responsesBody},
	{APIAnthropic, "/v1/messages", anthropicBody},
}

// streamed adds the wish for a stream to a request body.
func streamed(body string) string { return strings.Replace(body, "{", `{"stream":true,`, 1) }

// request makes a request; a header is "name: value".
func request(t *testing.T, ctx context.Context, method, url, body string, headers ...string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	// Connections are not reused: the leak gate counts their goroutines.
	return (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
}

// fetch makes a request and reads the whole answer.
func fetch(t *testing.T, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	response, err := request(t, t.Context(), method, url, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// ask makes a completions request for one message and returns the reply's text.
func ask(t *testing.T, scope *Scope, message string) string {
	t.Helper()
	body, _ := json.Marshal(map[string]any{"model": "m",
		"messages": []any{map[string]any{"role": "user", "content": message}}})
	_, text := fetch(t, "POST", scope.OpenAIBaseURL()+"/chat/completions", string(body))
	said, ok := lookup(parse(t, text), "choices.0.message.content").(string)
	if !ok {
		t.Fatalf("no content in %s", text)
	}
	return said
}

func parse(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return value
}

// sse is one server-sent event.
type sse struct {
	name string
	data any // nil for [DONE]
}

func parseSSE(t *testing.T, text string) []sse {
	t.Helper()
	var events []sse
	var name string
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "event: "); ok {
			name = rest
		} else if rest, ok := strings.CutPrefix(line, "data: "); ok {
			e := sse{name: name}
			if rest != "[DONE]" {
				e.data = parse(t, rest)
			}
			events = append(events, e)
			name = ""
		} else if line != "" {
			t.Fatalf("not a line of server-sent events: %q", line)
		}
	}
	return events
}

// parseOrNil is for JSON that may not be complete yet.
func parseOrNil(text string) any {
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return nil
	}
	return value
}
