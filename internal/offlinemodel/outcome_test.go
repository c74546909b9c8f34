package offlinemodel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// staged is a server whose rules, named for what the user says, hold requests
// up in every way there is.
type staged struct {
	*Server
	t *testing.T
}

func startStaged(t *testing.T) *staged {
	t.Helper()
	rule := func(name string, steps ...Step) Rule {
		return Rule{Name: name, When: When{User: name}, Reply: steps}
	}
	closed := rule("closed", Step{Text: "open"})
	closed.WaitFor = "g"
	slow := rule("slow", Step{Wait: 20 * time.Millisecond},
		Step{Text: "abcd", ChunkSize: 1, Delay: 5 * time.Millisecond})
	slow.Delay = 20 * time.Millisecond
	return &staged{t: t, Server: start(t, Options{Script: &Script{Rules: []Rule{
		closed, slow,
		rule("gate", Step{Text: "before"}, Step{WaitFor: "g"}, Step{Text: "after"}),
		rule("hang", Step{Text: "before"}, Step{Hang: true}),
		rule("silence", Step{Hang: true}),
		rule("drop", Step{Text: "before"}, Step{Drop: true}),
	}}})}
}

// say asks for a streamed answer.
func (s *staged) say(ctx context.Context, user string) (*http.Response, error) {
	body := fmt.Sprintf(`{"stream":true,"messages":[{"role":"user","content":%q}]}`, user)
	return request(s.t, ctx, "POST", s.OpenAIBaseURL()+"/chat/completions", body)
}

// whole asks and reads the answer to its end.
func (s *staged) whole(user string) (string, error) {
	response, err := s.say(s.t.Context(), user)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// expect waits for the outcome of the request that a rule answered.
func (s *staged) expect(rule string, want Outcome) {
	s.t.Helper()
	r, err := s.WaitRequest(s.t.Context(),
		func(r *Request) bool { return r.Rule == rule && r.Outcome != OutcomePending })
	if err != nil || r.Outcome != want {
		s.t.Errorf("%s: outcome %q, %v; want %q", rule, r.Outcome, err, want)
	}
}

func TestGateInReply(t *testing.T) {
	t.Parallel()
	s := startStaged(t)
	response, err := s.say(t.Context(), "gate")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	// Text before the gate arrives while the gate is closed.
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), "before") {
	}
	if err := s.WaitGate(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	s.Release("g")
	s.Release("g")
	if rest, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(rest), "[DONE]") {
		t.Errorf("rest %s, %v", rest, err)
	}
	s.expect("gate", OutcomeAnswered)
	if whole, err := s.whole("gate"); err != nil || !strings.Contains(whole, "after") {
		t.Errorf("a released gate stopped %s, %v", whole, err)
	}
}

func TestGateBeforeReply(t *testing.T) {
	t.Parallel()
	s := startStaged(t)
	done := make(chan string)
	go func() {
		text, err := s.whole("closed")
		done <- text + fmt.Sprint(err)
	}()
	if err := s.WaitGate(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	if status, _ := fetch(t, "POST", s.URL()+"/_offline/release?gate=g", ""); status != 204 {
		t.Errorf("release: status %d", status)
	}
	if text := <-done; !strings.Contains(text, "open") {
		t.Errorf("answer %s", text)
	}
}

func TestHang(t *testing.T) {
	t.Parallel()
	s := startStaged(t)
	ctx, cancel := context.WithCancel(t.Context())
	response, err := s.say(ctx, "hang")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	cancel()
	s.expect("hang", OutcomeClientGone)
}

// TestSilence hangs before the first word, so that not even headers come.
func TestSilence(t *testing.T) {
	t.Parallel()
	s := startStaged(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		response, err := s.say(ctx, "silence")
		if err == nil {
			_ = response.Body.Close()
		}
		ended <- err
	}()
	if _, err := s.WaitRequest(t.Context(), func(r *Request) bool { return r.Rule == "silence" }); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a reply that hangs at once had headers")
	}
	s.expect("silence", OutcomeClientGone)
}

func TestDrop(t *testing.T) {
	t.Parallel()
	s := startStaged(t)
	text, err := s.whole("drop")
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(text, "before") {
		t.Errorf("read %q, %v", text, err)
	}
	s.expect("drop", OutcomeDropped)
}

func TestPace(t *testing.T) {
	t.Parallel()
	s := startStaged(t)
	began := time.Now()
	text, err := s.whole("slow")
	if took := time.Since(began); err != nil || took < 60*time.Millisecond || strings.Count(text, `"content":"`) != 5 {
		t.Errorf("took %v for %s, %v", took, text, err)
	}
}
