package session

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// At each step of a session's life the CLI receives the whole configuration.
func TestEffectiveConfiguration(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{})
	own := tools("own")
	r.open(Opening{Config: object(t, `{"model":"m","streaming":true,"enableX":{"b":1,"a":2}}`), Tools: &own})
	has(t, r.last("session.create"), `"model":"m","streaming":true,"enableX":{"b":1,"a":2}`,
		`"tools":[{"name":"own"}]`, `"requestPermission":true`, `"sessionId":"s1"`)
	lacks(t, r.last("session.create"), "requestUserInput", `"hooks"`)

	// Tools alone are set as such; an unchanged set is not sent again.
	p, err := r.join(roster.Brings{Name: "one", Tools: tools("a", "b")})
	if err != nil {
		t.Fatal(err)
	}
	has(t, r.last("session.tools.set"), `"tools":[{"name":"own"},{"name":"a"},{"name":"b"}]`)
	if err := r.s.participants.sync(t.Context()); err != nil || len(r.received("session.tools.set")) != 1 || len(r.received("session.resume")) != 0 {
		t.Errorf("a sync without changes: %v, %d, %d", err, len(r.received("session.tools.set")), len(r.received("session.resume")))
	}

	// A switch takes everything anew, and leaves no event.
	q, err := r.join(roster.Brings{Name: "two", Tools: tools("c"), Handling: config.Handling{Methods: []string{"userInput.request", "hooks.invoke"}}})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{`"model":"m"`, `"enableX":{"b":1,"a":2}`, `"requestPermission":true`, `"requestUserInput":true`, `"hooks":true`, `"disableResume":true`}
	has(t, r.last("session.resume"), append(all, `"tools":[{"name":"own"},{"name":"a"},{"name":"b"},{"name":"c"}]`)...)

	// Others' switches stay when one leaves.
	r.s.participants.Leave(p)
	r.tasks.Wait()
	has(t, r.last("session.tools.set"), `"tools":[{"name":"own"},{"name":"c"}]`)
	r.s.participants.Leave(q)
	r.tasks.Wait()
	has(t, r.last("session.resume"), `"tools":[{"name":"own"}]`)
	lacks(t, r.last("session.resume"), "requestUserInput", `"hooks"`)

	// A caller's own resume merges, and leaves its event.
	if _, err := r.s.loader.Resume(t.Context(), Opening{Config: object(t, `{"model":"n"}`)}); err != nil {
		t.Fatal(err)
	}
	has(t, r.last("session.resume"), `"model":"n","streaming":true`, `"tools":[{"name":"own"}]`)
	// The CLI's event of the resume has each member that is given, and continuePendingWork only if the caller asked.
	lacks(t, r.last("session.resume"), `"disableResume":true`, "continuePendingWork")
	r.awaitEvent("session.resume")
}

func TestToolNamesClash(t *testing.T) {
	t.Parallel()
	r := newFixture(t, fakecli.Script{})
	own := tools("own")
	r.open(Opening{Tools: &own})
	p, err := r.join(roster.Brings{Tools: tools("a")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.join(roster.Brings{Tools: tools("x", "a")})
	wantReason(t, err, fault.ToolNameConflict)
	_, err = r.join(roster.Brings{Tools: tools("own")})
	wantReason(t, err, fault.ToolNameConflict)
	other := tools("own", "b")
	wantReason(t, r.s.participants.Change(t.Context(), p, &other, nil), fault.ToolNameConflict)
	same := tools("a", "b")
	if err := r.s.participants.Change(t.Context(), p, &same, nil); err != nil {
		t.Error(err)
	}
	taken := tools("b")
	_, err = r.s.loader.Resume(t.Context(), Opening{Config: object(t, `{"model":"kept out"}`), Tools: &taken})
	wantReason(t, err, fault.ToolNameConflict)
	if err := r.s.participants.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	has(t, r.last("session.tools.set"), `[{"name":"own"},{"name":"a"},{"name":"b"}]`)
	if got := r.s.settings.State.Object.String("model"); got != "" {
		t.Errorf("a refused resume left model %q", got)
	}
}

// TestOwnNames: tools and commands of the session and of participants do not have the names of the CLI's own, unless the
// caller wants the CLI's behaviour.
func TestOwnNames(t *testing.T) {
	t.Parallel()
	names, err := config.NewBuiltIns([]byte(`{"tools":[{"name":"view"}]}`), []byte(`{"commands":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	view, free := tools("view"), tools("free")
	command := []config.Command{{Name: "help"}}
	joining := func(b roster.Brings) *Joining { return &Joining{Brings: b} }
	for name, tc := range map[string]struct {
		o       Opening
		refused bool
	}{
		"nothing":           {},
		"another name":      {o: Opening{Tools: &free}},
		"a tool":            {o: Opening{Tools: &view}, refused: true},
		"exactly":           {o: Opening{Tools: &view, Exact: true}},
		"a command":         {o: Opening{Config: object(t, `{"commands":[{"name":"help"}]}`)}, refused: true},
		"a tool to join":    {o: Opening{Tools: &free, Join: joining(roster.Brings{Tools: view})}, refused: true},
		"a command to join": {o: Opening{Join: joining(roster.Brings{Commands: command})}, refused: true},
		"both":              {o: Opening{Tools: &view, Join: joining(roster.Brings{})}, refused: true},
	} {
		r := newFixture(t, fakecli.Script{})
		r.names = names
		if _, err := r.s.loader.Create(r.ctx, tc.o); (err != nil) != tc.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
