package roster

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
)

func tools(names ...string) (out []config.Tool) {
	for _, name := range names {
		out = append(out, config.Tool{Name: name, JSON: fmt.Appendf(nil, `{"name":%q}`, name)})
	}
	return out
}

func commands(names ...string) (out []config.Command) {
	for _, name := range names {
		out = append(out, config.Command{Name: name, JSON: fmt.Appendf(nil, `{"name":%q}`, name)})
	}
	return out
}

func place(t *testing.T, r *Roster, b Brings) *Participant {
	t.Helper()
	p, _, err := r.Place(b, "", false, &config.State{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestHandlers: which participants receive a callback, and whether it is handled.
func TestHandlers(t *testing.T) {
	t.Parallel()
	const input = "userInput.request"
	own := &config.State{Tools: tools("shared"), Handling: config.Handling{Methods: []string{input}}}
	var r Roster
	p1 := place(t, &r, Brings{Tools: tools("one"), Commands: commands("go"), Handling: config.Handling{Methods: []string{callback.PermissionRequested}}})
	p2 := place(t, &r, Brings{Tools: tools("two"), Handling: config.Handling{Methods: []string{callback.PermissionRequested}}})
	tool, permission := callback.ForEvent(callback.ToolRequested), callback.ForEvent(callback.PermissionRequested)
	for name, c := range map[string]struct {
		p       *callback.Pending
		to      []string
		handled bool
	}{
		"a tool of one":                   {&callback.Pending{Kind: tool, Tool: "one"}, []string{p1.ID}, true},
		"the session's tool":              {&callback.Pending{Kind: tool, Tool: "shared"}, []string{p1.ID, p2.ID}, true},
		"a tool of none":                  {&callback.Pending{Kind: tool, Tool: "none"}, nil, false},
		"a permission":                    {&callback.Pending{Kind: permission}, []string{p1.ID, p2.ID}, true},
		"a permission for one":            {&callback.Pending{Kind: permission, For: p2.ID}, []string{p2.ID}, true},
		"of the session's own handlers":   {&callback.Pending{Kind: callback.ForRequest(input)}, nil, true},
		"for them":                        {&callback.Pending{Kind: callback.ForRequest(input), For: Itself}, nil, true},
		"for one who does not handle it":  {&callback.Pending{Kind: callback.ForRequest(input), For: p1.ID}, nil, false},
		"a command, of its owner alone":   {&callback.Pending{Kind: callback.ForEvent(callback.CommandQueued), Command: "go"}, []string{p1.ID}, true},
		"a command that none has":         {&callback.Pending{Kind: callback.ForEvent(callback.CommandQueued), Command: "stay"}, nil, false},
		"for a participant who has gone":  {&callback.Pending{Kind: permission, For: "p-gone"}, nil, false},
		"a kind that nobody has asked of": {&callback.Pending{Kind: callback.ForRequest(callback.HooksInvoke)}, nil, false},
	} {
		if to, handled := r.Handlers(c.p, own); !slices.Equal(to, c.to) || handled != c.handled {
			t.Errorf("%s: asked are %q, handled %v; want %q, %v", name, to, handled, c.to, c.handled)
		}
	}
	if !r.Handles(callback.CommandQueued) || r.Handles(input) || !r.Answers(callback.PermissionRequested) {
		t.Error("a method is handled that is not, or is not that is")
	}
	p1.Connected, p2.Connected = false, false
	if r.Answers(callback.PermissionRequested) || !r.Handles(callback.PermissionRequested) {
		t.Error("a place that is only kept answers, or does not handle")
	}
}

// TestHookOrder: the session's own handlers first, then participants in the order they came.
func TestHookOrder(t *testing.T) {
	t.Parallel()
	hooks := config.Handling{Methods: []string{callback.HooksInvoke}}
	var r Roster
	p1 := place(t, &r, Brings{Handling: hooks})
	place(t, &r, Brings{Handling: config.Handling{Methods: []string{callback.HooksInvoke}, HookTypes: []string{"postToolUse"}}})
	p3 := place(t, &r, Brings{Handling: hooks})
	if got, want := r.HookOrder("preToolUse", hooks), []string{Itself, p1.ID, p3.ID}; !slices.Equal(got, want) {
		t.Errorf("the order is %q, want %q", got, want)
	}
	r.Remove(p1)
	if got, want := r.HookOrder("preToolUse", config.Handling{}), []string{p3.ID}; !slices.Equal(got, want) {
		t.Errorf("the order is %q, want %q", got, want)
	}
}

// TestPlace: who gets a place, and who gets one back.
func TestPlace(t *testing.T) {
	t.Parallel()
	own := &config.State{Tools: tools("shared"), Object: jsonobj.Object{{Key: "commands", Value: json.RawMessage(`[{"name":"own"}]`)}}}
	for name, c := range map[string]struct {
		b       Brings
		token   func(*Participant) string
		reclaim bool
		want    fault.Reason
	}{
		"another":                 {b: Brings{Tools: tools("b"), Commands: commands("c")}},
		"a tool of the session":   {b: Brings{Tools: tools("shared")}, want: fault.ToolNameConflict},
		"a tool of another":       {b: Brings{Tools: tools("a")}, want: fault.ToolNameConflict},
		"a command of theirs":     {b: Brings{Commands: commands("go")}, want: fault.CommandNameConflict},
		"a command of the other":  {b: Brings{Commands: commands("own")}, want: fault.CommandNameConflict},
		"the same again":          {b: Brings{Tools: tools("a"), Commands: commands("go")}, token: func(p *Participant) string { return p.Token }},
		"an unknown token":        {token: func(*Participant) string { return "x" }, want: fault.ParticipantNotFound},
		"reclaimed by itself":     {b: Brings{Identity: "alice"}, token: func(p *Participant) string { return p.Token }, reclaim: true},
		"reclaimed by another":    {b: Brings{Identity: "bob"}, token: func(p *Participant) string { return p.Token }, reclaim: true, want: fault.ParticipantNotFound},
		"another with the ticket": {b: Brings{Identity: "bob"}, token: func(p *Participant) string { return p.Token }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r Roster
			var cause error
			first := place(t, &r, Brings{
				Name: "first", Tools: tools("a"), Commands: commands("go"), Identity: "alice", Replace: func(err error) { cause = err },
			})
			token := ""
			if c.token != nil {
				token = c.token(first)
			}
			p, _, err := r.Place(c.b, token, c.reclaim, own)
			if fault.ReasonOf(err) != c.want {
				t.Fatalf("the error is %v, want %q", err, c.want)
			}
			switch {
			case err != nil:
				if r.Len() != 1 || first.Name != "first" || cause != nil {
					t.Error("a refusal has changed something")
				}
			case token != "" && (p != first || cause != ErrReplaced || r.Len() != 1):
				t.Errorf("the place was not taken over: cause %v, %d participants", cause, r.Len())
			case token == "" && (p == first || r.Len() != 2):
				t.Errorf("no place of its own; %d participants", r.Len())
			}
		})
	}
}

// TestRoster: for any joins and departures, each tool has one owner, removed participants have left, and saved
// participants resume by their tokens.
func TestRoster(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var r Roster
		own := &config.State{Tools: tools("a")}
		name := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		var gone []*Participant
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			if all := slices.Collect(r.All()); len(all) > 0 && rapid.Bool().Draw(rt, "leaves") {
				p := rapid.SampledFrom(all).Draw(rt, "who")
				r.Remove(p)
				gone = append(gone, p)
				continue
			}
			_, _, _ = r.Place(Brings{Tools: tools(name.Draw(rt, "tool")), Grace: time.Hour}, "", false, own)
		}
		seen := map[string]bool{}
		for _, tool := range r.Tools(own.Tools) {
			if seen[tool.Name] {
				rt.Fatalf("the tool %q has two owners", tool.Name)
			}
			seen[tool.Name] = true
		}
		for _, p := range gone {
			if !p.Left || p.Connected || r.Has(p) {
				rt.Fatal("a participant who was removed is still there")
			}
		}
		var next Roster
		next.Restore(r.Save())
		for p := range r.All() {
			back, _, err := next.Place(p.Brings, p.Token, false, own)
			if err != nil || back.ID != p.ID || !back.Connected {
				rt.Fatalf("%s does not come back: %v", p.ID, err)
			}
		}
		if next.Len() != r.Len() {
			rt.Fatalf("%d participants came back of %d", next.Len(), r.Len())
		}
	})
}

// link is a satellite that does nothing.
type link struct{ Satellite }

// TestTakeSatellites: each satellite is taken once.
func TestTakeSatellites(t *testing.T) {
	t.Parallel()
	var r Roster
	want := []Satellite{&link{}, &link{}}
	for _, sat := range []Satellite{want[0], nil, want[1]} {
		place(t, &r, Brings{}).Satellite = sat
	}
	if !r.HasSatellite() {
		t.Error("there are no satellites")
	}
	if got := r.TakeSatellites(); !slices.Equal(got, want) {
		t.Errorf("taken are %v, want %v", got, want)
	}
	if left := r.TakeSatellites(); len(left) > 0 || r.HasSatellite() {
		t.Errorf("left are %v", left)
	}
}

// A participant learns that a request is put to it, and not of one that is put to others.
func TestTellAsked(t *testing.T) {
	t.Parallel()
	var r Roster
	told := map[string]int{}
	var ids []string
	for range 3 {
		p := place(t, &r, Brings{})
		p.Asked = func() { told[p.ID]++ }
		ids = append(ids, p.ID)
	}
	place(t, &r, Brings{}) // it does not want to know
	r.TellAsked(ids[:2])
	if told[ids[0]] != 1 || told[ids[1]] != 1 || told[ids[2]] != 0 {
		t.Errorf("told are %v of %v", told, ids)
	}
}

// TestHolders: the error about a name says who has it, and when it is free if that participant has no connection.
func TestHolders(t *testing.T) {
	t.Parallel()
	var r Roster
	own := &config.State{}
	p := place(t, &r, Brings{Name: "first", Tools: tools("a"), Commands: commands("go"), Grace: time.Minute})
	for _, connected := range []bool{true, false} {
		p.Connected, p.LostAt = connected, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, b := range []Brings{{Tools: tools("a")}, {Commands: commands("go")}} {
			_, _, err := r.Place(b, "", false, own)
			f, _ := errors.AsType[*fault.Error](err)
			if f == nil || f.Metadata["holder"] != "first" {
				t.Fatalf("connected %v: %+v", connected, err)
			}
			if at, known := f.Metadata["free_at"]; known == connected || known && at != "2026-01-01T00:01:00Z" {
				t.Errorf("connected %v: it is free at %q", connected, at)
			}
		}
	}
	if _, _, err := r.Place(Brings{Commands: commands("OWN")}, "", false, &config.State{
		Object: jsonobj.Object{{Key: "commands", Value: json.RawMessage(`[{"name":"own"}]`)}},
	}); fault.ReasonOf(err) != fault.CommandNameConflict {
		t.Errorf("a command of the session's own: %v", err)
	}
}

// TestStreamsAreCounted: a stream that takes the place of another one is told apart from it.
func TestStreamsAreCounted(t *testing.T) {
	t.Parallel()
	r := &Roster{}
	p := place(t, r, Brings{Grace: time.Hour})
	first := p.Streams
	back, _, err := r.Place(p.Brings, p.Token, false, &config.State{})
	if err != nil || back != p || back.Streams != first+1 {
		t.Errorf("the participant is %p with %d streams, was %p with %d: %v", back, back.Streams, p, first, err)
	}
}
