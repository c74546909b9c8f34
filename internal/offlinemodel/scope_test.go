package offlinemodel

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestScopes(t *testing.T) {
	t.Parallel()
	server := start(t, Options{Script: says("root")})
	one := scoped(t, server, says("one"))
	named, err := server.NewScope("with a token", &Script{
		GitHub: GitHub{Users: []User{{Token: "tok"}}}, Default: &Rule{Reply: []Step{{Text: "named"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, server.Scope, "x") + ask(t, one, "x") + ask(t, named, "x"); got != "rootonenamed" {
		t.Errorf("the scopes say %q", got)
	}
	for header, want := range map[string]string{
		"authorization: Bearer tok": "named", "authorization: Bearer other": "root",
		"api-key: with-a-token": "named", "x-api-key: TestScopes": "one",
	} {
		if _, text := fetch(t, "POST", server.URL()+"/chat/completions", completionsBody,
			header); !strings.Contains(text, want) {
			t.Errorf("%s is answered %s", header, text)
		}
	}
	if a, b, c := len(server.Requests()), len(one.Requests()), len(named.Requests()); a != 2 || b != 2 || c != 3 {
		t.Errorf("requests at root %d, one %d, named %d", a, b, c)
	}
	if r := named.Requests()[0]; r.Scope != "with-a-token" || r.Number != 1 || r.Path != "/v1/chat/completions" {
		t.Errorf("captured %+v", r)
	}
	if _, err := server.NewScope("with/a/token", says("x")); err == nil {
		t.Error("a name was given twice")
	}
	if _, err := server.NewScope("", says("x")); err == nil {
		t.Error("a scope without a name")
	}
	named.Close()
	if status, _ := fetch(t, "GET", named.URL()+"/models", ""); status != 404 {
		t.Errorf("a closed scope answers %d", status)
	}
	if len(named.Requests()) != 3 {
		t.Error("a closed scope forgot its requests")
	}
	if _, err := server.NewScope("with a token", says("x")); err != nil {
		t.Errorf("the name of a closed scope is still taken: %v", err)
	}
}

func TestWaitRequests(t *testing.T) {
	t.Parallel()
	server := start(t, Options{Script: says("x")})
	go func() {
		for range 3 {
			fetch(t, "POST", server.OpenAIBaseURL()+"/chat/completions", completionsBody)
		}
	}()
	requests, err := server.WaitRequests(t.Context(), 3)
	if err != nil || len(requests) != 3 || requests[2].Number != 3 {
		t.Errorf("waited for %d requests, %v", len(requests), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := server.WaitRequests(ctx, 4); err == nil {
		t.Error("a request that never came was waited for")
	}
}

// TestWaitForRule: who waits learns of the rule of a request that has neither an answer nor an outcome after it.
func TestWaitForRule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := compile(&Script{Rules: []Rule{{Name: "silence", Reply: []Step{{Hang: true}}}}})
		if err != nil {
			t.Fatal(err)
		}
		s := newScope(t.Context(), "", "", p, func() {})
		request := &Request{API: APICompletions}
		s.capture(request)
		found := false
		go func() {
			_, err := s.WaitRequest(t.Context(), func(r *Request) bool { return r.Rule == "silence" })
			found = err == nil
		}()
		synctest.Wait()
		s.pick(request)
		synctest.Wait()
		if !found {
			t.Error("the rule was not noticed")
		}
	})
}

func TestCaptureIsBounded(t *testing.T) {
	t.Parallel()
	s := newScope(t.Context(), "", "", &program{}, func() {})
	for range MaxRequests + 10 {
		s.capture(&Request{})
	}
	kept := s.Requests()
	if len(kept) != MaxRequests || kept[0].Number != 11 {
		t.Errorf("kept %d requests from number %d", len(kept), kept[0].Number)
	}
	big := make([]byte, MaxRequestBytes/4+1)
	for range 5 {
		s.capture(&Request{Body: big})
	}
	if kept := s.Requests(); len(kept) != 3 {
		t.Errorf("kept %d large requests, want 3", len(kept))
	}
	s.Forget()
	s.capture(&Request{})
	if kept := s.Requests(); len(kept) != 1 || kept[0].Number != MaxRequests+16 {
		t.Errorf("after forgetting: %+v", kept)
	}
}

// TestCloseDropsWaiting has requests wait in every way there is while the
// server closes.
func TestCloseDropsWaiting(t *testing.T) {
	t.Parallel()
	server, err := Start(t.Context(), Options{Script: &Script{Rules: []Rule{
		{When: When{User: "1"}, WaitFor: "g", Reply: []Step{{Text: "x"}}},
		{When: When{User: "2"}, Delay: time.Hour, Reply: []Step{{Text: "x"}}},
		{When: When{User: "3"}, Reply: []Step{{Hang: true}}},
		{When: When{User: "4"}, Reply: []Step{{Wait: time.Hour}}},
		{When: When{User: "5"}, Reply: []Step{{Text: "xx", ChunkSize: 1, Delay: time.Hour}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	for i := 1; i <= 5; i++ {
		go func() {
			body := fmt.Sprintf(`{"stream":true,"messages":[{"role":"user","content":"%d"}]}`, i)
			response, err := request(t, t.Context(), "POST", server.OpenAIBaseURL()+"/chat/completions", body)
			if err == nil {
				_, err = response.Body.Read(make([]byte, 1<<20))
				for err == nil {
					_, err = response.Body.Read(make([]byte, 1<<20))
				}
				_ = response.Body.Close()
			}
			ended <- err
		}()
	}
	if _, err := server.WaitRequests(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := <-ended; err == nil {
			t.Error("a request that waited was answered")
		}
	}
	for _, r := range server.Requests() {
		if r.Outcome != OutcomeDropped {
			t.Errorf("request %d: %s", r.Number, r.Outcome)
		}
	}
	if _, err := server.WaitRequests(t.Context(), 6); err == nil {
		t.Error("a closed server was waited for")
	}
}

func TestControl(t *testing.T) {
	t.Parallel()
	server := start(t, Options{})
	scope := scoped(t, server, says("x"))
	fetch(t, "POST", scope.URL()+"/v1/messages", anthropicBody, "x-api-key: k")
	_, text := fetch(t, "GET", scope.URL()+"/_offline/requests", "")
	shown := parse(t, text)
	for path, want := range map[string]any{
		"requests.0.api": "anthropic", "requests.0.messages.0.text": "hi", "requests.0.system": "be kind",
		"requests.0.header.X-Api-Key.0": "k", "requests.0.rule": "default", "requests.0.outcome": "answered",
		"requests.0.body": nil,
	} {
		if got := lookup(shown, path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	_, text = fetch(t, "GET", scope.URL()+"/_offline/requests?body=true", "")
	if got := lookup(parse(t, text), "requests.0.body.model"); got != "m" {
		t.Errorf("body: %s", text)
	}
	if status, _ := fetch(t, "DELETE", scope.URL()+"/_offline/requests", ""); status != 204 ||
		len(scope.Requests()) != 0 {
		t.Errorf("delete: %d", status)
	}
	for _, bad := range []string{"GET /_offline/x", "POST /_offline/release", "PUT /_offline/requests"} {
		method, path, _ := strings.Cut(bad, " ")
		if status, _ := fetch(t, method, scope.URL()+path, ""); status != 404 {
			t.Errorf("%s: %d", bad, status)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	server := start(t, Options{MaxBodyBytes: 200, Script: says("x")})
	tests := []struct {
		method, path, body, header string
		status                     int
	}{
		{"POST", "/v1/chat/completions", completionsBody, "host: evil.example", 403},
		{"POST", "/v1/chat/completions", completionsBody, "origin: https://evil.example", 403},
		{"POST", "/v1/chat/completions", completionsBody, "origin: http://localhost:3000", 200},
		{"POST", "/v1/chat/completions", completionsBody, "host: [::1]:80", 200},
		{"POST", "/v1/chat/completions", strings.Repeat("x", 201), "a: b", 413},
		{"POST", "/v1/chat/completions", "{", "a: b", 400},
		{"GET", "/v1/chat/completions", "", "a: b", 405},
		{"POST", "/v1/models", "", "a: b", 405},
		{"POST", "/v1/embeddings", "{}", "a: b", 404},
		{"GET", "/s/none/v1/models", "", "a: b", 404},
	}
	for _, test := range tests {
		if status, text := fetch(t, test.method, server.URL()+test.path, test.body,
			test.header); status != test.status {
			t.Errorf("%s %s with %q: %d %s, want %d", test.method, test.path, test.header, status, text, test.status)
		}
	}
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "example.com:0", "nonsense"} {
		if server, err := Start(t.Context(), Options{Addr: addr}); err == nil {
			_ = server.Close(t.Context())
			t.Errorf("listens on %s", addr)
		}
	}
	if _, err := Start(t.Context(), Options{Script: &Script{Rules: []Rule{{}}}}); err == nil {
		t.Error("started with a broken script")
	}
}

// TestLog sees that neither headers nor bodies reach the log.
func TestLog(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	server, err := Start(t.Context(), Options{
		Script: says("x"), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	fetch(t, "POST", server.OpenAIBaseURL()+"/chat/completions?secret3", completionsBody+strings.Repeat(" ", 10),
		"authorization: Bearer secret1")
	if err := server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := log.String(); !strings.Contains(got, "path=/v1/chat/completions") || strings.Contains(got, "secret") ||
		strings.Contains(got, "be kind") {
		t.Errorf("log %s", got)
	}
}
