package turn

import (
	"testing"
	"time"
)

// TestOverdue has the time limits: which one holds, and what does not count.
func TestOverdue(t *testing.T) {
	t.Parallel()
	bounds := Bounds{}.WithDefaults()
	for name, c := range map[string]struct {
		events  []string
		agent   string // of the last
		pending bool
		limit   time.Duration // 0: never
	}{
		"nothing runs":            {},
		"silence":                 {events: []string{"user.message"}, limit: bounds.Stall},
		"a model":                 {events: []string{"user.message", "model.call_start"}, limit: bounds.ModelCall},
		"a model of a sub-agent":  {events: []string{"user.message", "model.call_start"}, agent: "a", limit: bounds.ModelCall},
		"a model that has":        {events: []string{"user.message", "model.call_start", "model.call_finished"}, limit: bounds.Stall},
		"a model of another":      {events: []string{"user.message", "model.call_start", "model.call_finished"}, agent: "a", limit: bounds.ModelCall},
		"the agent has rested":    {events: []string{"user.message", "assistant.idle"}, limit: bounds.Rest},
		"a failure":               {events: []string{"user.message", "session.error"}, limit: bounds.Rest},
		"an error of a sub-agent": {events: []string{"user.message", "session.error"}, agent: "a", limit: bounds.Stall},
		"a tool":                  {events: []string{"user.message", "tool.execution_start"}, limit: bounds.Stall}, // then the bridge asks the CLI
		"a tool and a rest":       {events: []string{"user.message", "tool.execution_start", "assistant.idle"}, limit: bounds.Rest},
		"a callback":              {events: []string{"user.message"}, pending: true, limit: bounds.Stall}, // too
		"the session is idle":     {events: []string{"user.message", "session.idle"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDriver()
			for i, e := range c.events {
				agent := ""
				if i == len(c.events)-1 {
					agent = c.agent
				}
				d.play(e, agent, "{}")
			}
			var took time.Duration
			for begin := d.now; took < 2*bounds.ModelCall; took = d.now.Sub(begin) {
				if d.m.Overdue(d.now, c.pending) {
					break
				}
				d.now = d.now.Add(time.Second)
			}
			if want := c.limit; took != want && !(want == 0 && took >= 2*bounds.ModelCall) {
				t.Errorf("overdue after %v, want %v", took, want)
			}
			d.m.SetStalling(true)
			if d.m.Overdue(d.now.Add(24*time.Hour), false) {
				t.Error("overdue again while it is given up")
			}
		})
	}
}

// TestSilent: the silence of a turn does not count while something is outstanding, and counts from its end on.
func TestSilent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		events  []string
		pending bool
		want    time.Duration
	}{
		"nothing":            {want: time.Hour},
		"a callback":         {pending: true},
		"a tool":             {events: []string{"tool.execution_start"}},
		"a tool that ended":  {events: []string{"tool.execution_start", "tool.execution_complete"}, want: time.Hour},
		"one of two tools":   {events: []string{"tool.execution_start", "tool.execution_start", "tool.execution_complete"}},
		"an end too many":    {events: []string{"tool.execution_complete", "tool.execution_start"}},
		"an end too many, 2": {events: []string{"tool.execution_complete", "tool.execution_start", "tool.execution_complete"}, want: time.Hour},
	} {
		d := newDriver()
		d.play("user.message", "", "{}")
		for _, e := range tc.events {
			d.play(e, "", "{}")
		}
		if got := d.m.Silent(d.now.Add(time.Hour), tc.pending); got != tc.want {
			t.Errorf("%s: silent for %v, want %v", name, got, tc.want)
		}
		if got := d.m.Silent(d.now.Add(90*time.Minute), false); tc.pending && got != 30*time.Minute {
			t.Errorf("%s: afterwards silent for %v", name, got)
		}
	}
}

// TestDeserted: a session that no runtime has is left when a message has waited for long enough.
func TestDeserted(t *testing.T) {
	t.Parallel()
	d := newDriver()
	d.m.Bounds.Stall = time.Minute
	d.m.Heard(d.now)
	if d.m.Deserted(d.now.Add(time.Hour)) {
		t.Error("a session without messages is deserted")
	}
	d.sent("m1")
	for after, want := range map[time.Duration]bool{time.Minute - 1: false, time.Minute: true} {
		if got := d.m.Deserted(d.now.Add(after)); got != want {
			t.Errorf("deserted after %v: %v", after, got)
		}
	}
}
