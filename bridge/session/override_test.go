package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

func overriding(text string) Message {
	m := message(text)
	m.Override = true
	m.Params.Set("requestHeaders", json.RawMessage(`{"x":"turn"}`))
	return m
}

// hanging is a session with a provider that has headers, on a CLI that hangs on "hang".
func hanging(t *testing.T) *fixture {
	r := newFixture(t, fakecli.Script{Prompts: []fakecli.Prompt{
		{Match: "hang", Turns: []fakecli.Turn{{Hang: true}}},
		{Match: "fail", Turns: []fakecli.Turn{{Error: &fakecli.ModelError{Type: "query", Message: "bad"}}}},
	}})
	r.open(Opening{Config: object(t, `{"provider":{"baseUrl":"http://x","headers":{"x":"session"},"apiKey":"k"}}`)})
	return r
}

// The CLI merges headers; taking the provider's away for a turn is the bridge's doing.
func TestOverrideTakesHeadersAwayForOneTurn(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"hello", "fail"} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			r := hanging(t)
			sent := r.send(overriding(text))
			has(t, r.received("session.resume")[0], `"provider":{"baseUrl":"http://x","headers":{},"apiKey":"k"}`, `"disableResume":true`)
			sent.Waiter.Wait(t.Context(), 0)
			r.send(message("next")).Waiter.Wait(t.Context(), 0) // waits for the headers to be back
			var order []string
			for _, e := range r.cli.Log() {
				if e.Kind == fakecli.EntryReceived && (e.Type == "session.resume" || e.Type == "session.send") {
					order = append(order, e.Type)
				}
			}
			if want := "[session.resume session.send session.resume session.send]"; len(order) != 4 || want != "["+order[0]+" "+order[1]+" "+order[2]+" "+order[3]+"]" {
				t.Errorf("calls: %v", order)
			}
			has(t, r.last("session.resume"), `"headers":{"x":"session"}`)
		})
	}
}

func TestOverrideNeedsHeadersToReplace(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{})
	r.open(Opening{Config: object(t, `{"provider":{"baseUrl":"http://x"}}`)})
	r.send(overriding("hello")).Waiter.Wait(t.Context(), 0)
	if got := r.received("session.resume"); len(got) != 0 {
		t.Errorf("resumed: %v", got)
	}
	has(t, r.last("session.send"), `"requestHeaders":{"x":"turn"}`)
}

func TestTurnsWaitAroundAnOverride(t *testing.T) {
	t.Parallel()
	r := hanging(t)
	r.send(message("hang"))
	// An overriding message waits for the running turn.
	var work sync.WaitGroup
	work.Go(func() { r.send(overriding("hang too")) })
	r.awaitEvent("assistant.turn_start")
	if len(r.received("session.resume")) != 0 {
		t.Error("the headers were taken from a running turn")
	}
	if _, err := r.s.sender.Abort(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	work.Wait()
	// Steering it is refused at once, anything else waits.
	steer := message("steer")
	steer.Immediate = true
	_, err := sendAndAwaitReply(t.Context(), r.s, steer)
	wantReason(t, err, fault.SessionBusy)
	ctx, cancel := context.WithCancel(t.Context())
	var waited error
	work.Go(func() { _, waited = sendAndAwaitReply(ctx, r.s, message("waits")) })
	// A participant that joins meanwhile does not restore the headers.
	if _, err := r.join(roster.Brings{Handling: config.Handling{Methods: []string{"hooks.invoke"}}}); err != nil {
		t.Fatal(err)
	}
	has(t, r.last("session.resume"), `"hooks":true`, `"headers":{}`)
	cancel()
	work.Wait()
	wantReason(t, waited, fault.Cancelled)
	if _, err := r.s.sender.Abort(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.send(message("next")).Waiter.Wait(t.Context(), 0)
	has(t, r.last("session.resume"), `"headers":{"x":"session"}`, `"hooks":true`)
}

func TestOverrideEndsWithItsRuntime(t *testing.T) {
	t.Parallel()
	r := hanging(t)
	sent := r.send(overriding("hang"))
	r.awaitEvent("assistant.turn_start")
	r.crash()
	if out := sent.Waiter.Wait(t.Context(), 0); out.Status != lost {
		t.Errorf("outcome is %v", out)
	}
	r.send(message("next")).Waiter.Wait(t.Context(), 0)
	has(t, r.last("session.resume"), `"headers":{"x":"session"}`)
	if n := len(r.received("session.resume")); n != 1 {
		t.Errorf("%d resumes", n)
	}
}

// TestRefusedOverride: the provider has its headers again if the CLI refuses the message.
func TestRefusedOverride(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{Faults: []fakecli.MethodFault{
		{Method: "session.send", Times: 1, Fault: fakecli.Fault{Kind: fakecli.FaultError, Code: -32603, Message: "no such thing"}},
	}})
	r.open(Opening{Config: object(t, `{"provider":{"baseUrl":"http://x","headers":{"x":"session"}}}`)})
	if _, err := sendAndAwaitReply(t.Context(), r.s, overriding("hello")); err == nil {
		t.Fatal("the message is accepted")
	}
	resumes := r.received("session.resume")
	if len(resumes) != 2 {
		t.Fatalf("the resumes are %v", resumes)
	}
	has(t, resumes[0], `"headers":{}`)
	has(t, resumes[1], `"headers":{"x":"session"}`)
}

func TestProvider(t *testing.T) {
	t.Parallel()
	r := hanging(t)
	change := func(o jsonobj.Object) (jsonobj.Object, error) {
		o.SetString("baseUrl", "http://y")
		o.Set("apiKey", nil)
		return o, nil
	}
	if err := r.s.settings.SetProvider(t.Context(), change, "m2"); err != nil {
		t.Fatal(err)
	}
	has(t, r.last("session.resume"), `"provider":{"baseUrl":"http://y","headers":{"x":"session"}}`, `"model":"m2"`, `"disableResume":true`)
	if err := r.s.settings.SetCredentials(t.Context(), object(t, `{"apiKey":"k2"}`), ""); err != nil {
		t.Fatal(err)
	}
	has(t, r.last("session.resume"), `"apiKey":"k2"`, `"baseUrl":"http://y"`)
	refuse := func(jsonobj.Object) (jsonobj.Object, error) { return nil, fault.New(fault.InvalidField, "no") }
	wantReason(t, r.s.settings.SetProvider(t.Context(), refuse, ""), fault.InvalidField)
	r.send(message("hang"))
	r.awaitEvent("assistant.turn_start")
	wantReason(t, r.s.settings.SetProvider(t.Context(), change, ""), fault.SessionBusy)
}

// A token that the CLI has is sent again only to another process, or after a change.
func TestTokenIsGivenOnce(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{})
	r.open(Opening{Config: object(t, `{"gitHubToken":"first"}`)})
	has(t, r.last("session.create"), `"gitHubToken":"first"`)
	r.send(message("hello")).Waiter.Wait(t.Context(), 0)
	join := func(method string) {
		t.Helper()
		if _, err := r.join(roster.Brings{Name: method, Handling: config.Handling{Methods: []string{method}}}); err != nil {
			t.Fatal(err)
		}
	}
	join("userInput.request")
	has(t, r.last("session.resume"), `"requestUserInput":true`)
	lacks(t, r.last("session.resume"), "gitHubToken")
	if err := r.s.settings.SetCredentials(t.Context(), nil, "second"); err != nil {
		t.Fatal(err)
	}
	has(t, r.last("session.resume"), `"gitHubToken":"second"`)
	join("hooks.invoke")
	has(t, r.last("session.resume"), `"hooks":true`)
	lacks(t, r.last("session.resume"), "gitHubToken")
	r.crash()
	r.send(message("again")).Waiter.Wait(t.Context(), 0)
	has(t, r.last("session.resume"), `"gitHubToken":"second"`)
}

// A change that the CLI rejects is not remembered. The session may have been saved with it, and is to be saved again.
func TestRefusedChangesAreUndone(t *testing.T) {
	t.Parallel()
	no := fakecli.Fault{Kind: fakecli.FaultError, Code: -32603, Message: "no such thing"}
	r := newFixture(t, fakecli.Script{Faults: []fakecli.MethodFault{
		{Method: "session.resume", Times: 3, Fault: no}, {Method: "session.tools.set", Times: 1, Fault: no},
	}})
	var saved string
	state := func() string { return string(r.s.settings.State.Object.JSON()) + fmt.Sprint(r.s.settings.State.Tools) }
	undone := func(what string) {
		t.Helper()
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		if now := state(); saved != now {
			t.Errorf("%s is refused, and saved is %s, not %s", what, saved, now)
		}
		saved = ""
	}
	r.open(Opening{Config: object(t, `{"provider":{"baseUrl":"http://x"},"model":"m"}`)})
	r.s.mu.Lock()
	r.dirtied = func() { saved = state() }
	r.s.mu.Unlock()
	own := tools("bad")
	_, err := r.s.settings.SetTools(t.Context(), own)
	wantReason(t, err, fault.SessionRefused)
	undone("a tool")
	err = r.s.settings.SetProvider(t.Context(), func(o jsonobj.Object) (jsonobj.Object, error) { o.SetString("baseUrl", "bad"); return o, nil }, "bad")
	wantReason(t, err, fault.SessionRefused)
	undone("a provider")
	wantReason(t, r.s.settings.SetCredentials(t.Context(), object(t, `{"apiKey":"bad"}`), "bad"), fault.SessionRefused)
	undone("a credential")
	_, err = r.s.loader.Resume(t.Context(), Opening{Config: object(t, `{"model":"bad"}`), Tools: &own, Handling: &config.Handling{Methods: []string{callback.PermissionRequested}}})
	wantReason(t, err, fault.SessionRefused)
	undone("a configuration")
	if _, err := r.s.loader.Resume(t.Context(), Opening{}); err != nil {
		t.Fatal(err)
	}
	has(t, r.last("session.resume"), `"baseUrl":"http://x"`, `"model":"m"`)
	lacks(t, r.last("session.resume"), "bad")
}

// Tools of a participant that the CLI rejects are not remembered: every later load would fail with them.
func TestRejectedToolsAreUndone(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{Faults: []fakecli.MethodFault{
		{Method: "session.tools.set", After: 1, Times: 1,
			Fault: fakecli.Fault{Kind: fakecli.FaultError, Code: -32603, Message: "no such thing"}},
	}})
	r.open(Opening{})
	p, err := r.join(roster.Brings{Tools: tools("a")})
	if err != nil {
		t.Fatal(err)
	}
	r.send(message("hi")).Waiter.Wait(t.Context(), 0)
	bad := tools("bad")
	wantReason(t, r.s.participants.Change(t.Context(), p, &bad, &config.Handling{}), fault.SessionRefused)
	r.crash()
	r.send(message("on")).Waiter.Wait(t.Context(), 0)
	has(t, r.last("session.resume"), `"tools":[{"name":"a"}]`)
}

// TestGivenCredentials: what was missing is there, and the session is saved with it once the CLI has accepted it.
func TestGivenCredentials(t *testing.T) {
	t.Parallel()
	saves := 0
	s := New(Config{ID: "s1", Host: &fixture{dirtied: func() { saves++ }}})
	st := s.settings
	st.State.Object, st.State.Missing = object(t, `{"provider":{"baseUrl":"http://x"}}`), []string{"provider.apiKey", config.GitHubToken}
	for n, give := range []struct {
		secrets jsonobj.Object
		token   string
		missing []string
	}{{object(t, `{"apiKey":"k"}`), "", []string{config.GitHubToken}}, {nil, "token", nil}} {
		before := st.State
		err := st.try(func() error { return st.takeCredentials(give.secrets, give.token) }, func() error {
			if !slices.Equal(st.State.Missing, give.missing) {
				t.Errorf("%v are missing", st.State.Missing)
			}
			if saved := st.accepted(); saves != n || !slices.Equal(saved.Missing, before.Missing) {
				t.Errorf("not accepted, %v are missing, saved %d times", saved.Missing, saves)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if saved := st.accepted(); saves != n+1 || !slices.Equal(saved.Missing, give.missing) {
			t.Errorf("accepted, %v are missing, saved %d times", saved.Missing, saves)
		}
	}
}

// TestCredentialsOneByOne: a session that lacks two secrets takes one after the other, and can be loaded with both.
func TestCredentialsOneByOne(t *testing.T) {
	t.Parallel()
	for _, tokenFirst := range []bool{false, true} {
		s := onStock(t, &stock{rt: &puppet{}})
		st := s.settings
		st.State.Object, st.State.Missing = object(t, `{"provider":{"baseUrl":"http://x"}}`), []string{"provider.apiKey", config.GitHubToken}
		key := func() error { return st.SetCredentials(t.Context(), object(t, `{"apiKey":"k"}`), "") }
		token := func() error { return st.SetCredentials(t.Context(), nil, "token") }
		first, second, left := key, token, config.GitHubToken
		if tokenFirst {
			first, second, left = token, key, "provider.apiKey"
		}
		wantReason(t, first(), fault.CredentialsNeeded)
		if !slices.Equal(st.State.Missing, []string{left}) {
			t.Errorf("%v are missing, want %s", st.State.Missing, left)
		}
		if err := second(); err != nil || s.loader.State() != Loaded {
			t.Errorf("with both the session is in state %v: %v", s.loader.State(), err)
		}
	}
}

// TestGivenProvider: a provider that a caller gives is not a configured one, and is saved.
func TestGivenProvider(t *testing.T) {
	t.Parallel()
	p, saves := &puppet{}, 0
	s := onStock(t, &stock{rt: p})
	s.host.(*stock).dirtied = func() { saves++ }
	s.loader.runtime, s.loader.state, s.settings.State.ProviderRef = p, Loaded, "configured"
	change := func(jsonobj.Object) (jsonobj.Object, error) { return object(t, `{"baseUrl":"http://y"}`), nil }
	if err := s.settings.SetProvider(t.Context(), change, "m"); err != nil {
		t.Fatal(err)
	}
	has(t, string(s.settings.State.Object.JSON()), `"baseUrl":"http://y"`, `"model":"m"`)
	if s.settings.ProviderRef() != "" || saves == 0 {
		t.Errorf("the provider is %q, saved %d times", s.settings.ProviderRef(), saves)
	}
}

// Of two changes under trial the CLI refuses the first: the second does not bring it back, whether it is accepted or not.
func TestTrialsOverlap(t *testing.T) {
	t.Parallel()
	for _, accepted := range []bool{true, false} {
		st := New(Config{ID: "s1", Host: &fixture{}}).settings
		refused := errors.New("refused")
		set := func(member string) (end func(error)) {
			given, answer, ended := make(chan struct{}), make(chan error), make(chan struct{})
			go func() {
				defer close(ended)
				_ = st.try(func() error {
					st.State.Object = st.State.Object.Clone()
					st.State.Object.SetString(member, "new")
					return nil
				}, func() error {
					close(given)
					return <-answer
				})
			}()
			<-given
			return func(err error) {
				answer <- err
				<-ended
			}
		}
		first := set("a")
		second := set("b")
		first(refused)
		saved := st.accepted()
		if text := string(saved.Object.JSON()); text != `{}` {
			t.Errorf("under trial, saved is %s", text)
		}
		want, err := `{}`, refused
		if accepted {
			want, err = `{"b":"new"}`, nil
		}
		second(err)
		saved = st.accepted()
		if now := string(st.State.Object.JSON()); now != want || string(saved.Object.JSON()) != want {
			t.Errorf("the configuration is %s, saved is %s, want %s", now, saved.Object.JSON(), want)
		}
	}
}

// TestHeadersOfASessionThatHasLeft: the session may leave its runtime while a change of the headers waits for its turn. That runtime
// then gets no configuration, with which it would load the session once more.
func TestHeadersOfASessionThatHasLeft(t *testing.T) {
	t.Parallel()
	for _, replaced := range []bool{false, true} {
		for state, want := range map[State]fault.Reason{Unloaded: fault.RuntimeLost, Deleted: fault.SessionNotFound} {
			p := &puppet{answer: func(string) (string, error) { return `{}`, nil }}
			s := onStock(t, &stock{rt: p})
			s.loader.state, s.loader.runtime, s.sender.replacedIn = Loaded, p, p
			if err := s.loader.lifecycle.acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
			done := make(chan error)
			go func() { done <- s.sender.reconfigure(t.Context(), p, replaced) }()
			s.update(func() { s.loader.detach(state) })
			s.loader.lifecycle.release()
			if err := <-done; fault.ReasonOf(err) != want || p.called("session.resume") || s.sender.replacedIn != nil {
				t.Errorf("in state %v: %v; calls %v", state, err, p.calls)
			}
		}
	}
}
