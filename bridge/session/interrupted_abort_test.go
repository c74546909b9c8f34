package session

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
)

// A CLI process that is killed may not have written an abort down that the bridge has read.
func TestAbortedTurnIsLeft(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		events []string
		bridge bool // has made the abort
		caller bool // aborts meanwhile
		want   bool
	}{
		"not aborted":                     {events: []string{firstMessage}, want: true},
		"aborted by a caller":             {events: []string{firstMessage, callersAbort}},
		"aborted by the bridge":           {events: []string{firstMessage, callersAbort}, bridge: true, want: true},
		"aborted by a caller amid a load": {events: []string{firstMessage, callersAbort}, bridge: true, caller: true},
		"a message before it is removed":  {events: []string{callersAbort}, want: true},
		"an earlier turn was aborted":     {events: []string{callersAbort, firstMessage}, want: true},
		"a turn of a helper is aborted":   {events: []string{firstMessage, strings.Replace(callersAbort, "{", `{"agentId":"a",`, 1)}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, r := interrupted(t, nil, firstMessage)
				if test.caller {
					s.prompts.beginAbort(t.Context())
				}
				for _, text := range test.events {
					s.had(text, test.bridge)
				}
				if test.caller {
					s.prompts.endAbort()
				}
				s.update(func() { s.turns.lose(lost) })
				if told := r.told(t, s); told != test.want {
					t.Errorf("the agent gets %q", r.prompts)
				}
			})
		})
	}
}

// The CLI may have lost an abort, go on with the turn, and end once more.
func TestAbortOutlivesLoads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := interrupted(t, nil, firstMessage)
		s.had(firstMessage, false)
		s.had(callersAbort, false)
		for range 2 {
			s.update(func() { s.loader.state, s.ingester.Known.Interruption.Last = Unloaded, true })
			if r.told(t, s) {
				t.Errorf("the agent gets %q", r.prompts)
			}
			s.had(strings.Replace(callersAbort, "0003", "0004", 1), true) // does not change that
		}
	})
}

// While a caller aborts or cuts the history, the agent is not told to continue: not by a load that the call waits for, not if that
// was decided before, and not once more if a process may have received it. Nor is it told if the turn was cut meanwhile.
func TestAbortUnderWay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ aborted, rewound, unseen, stored, given, cut, want bool }{
		"no abort": {want: true}, "during a load": {aborted: true},
		"unseen, no abort": {unseen: true, want: true}, "during the load that finds the turn": {unseen: true, aborted: true},
		"decided, no abort": {stored: true, want: true}, "decided": {stored: true, aborted: true},
		"given, no abort": {stored: true, given: true, want: true}, "given": {stored: true, given: true, aborted: true},
		"rewound during a load": {rewound: true}, "decided, and then rewound": {stored: true, rewound: true},
		"decided, and cut by another program": {stored: true, cut: true}, "given, and cut": {stored: true, given: true, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				aborted := make(chan error, 9)
				story := []string{firstMessage}
				if test.cut {
					story = nil
				}
				s, r := interrupted(t, func(s *Session) {
					if test.rewound {
						go func() {
							_, _, err := s.loader.Invoke(t.Context(), "session.history.rewind", nil)
							aborted <- err
						}()
						synctest.Wait()
					}
					if test.aborted {
						go func() {
							_, err := s.sender.Abort(t.Context(), nil)
							aborted <- err
						}()
						synctest.Wait()
					}
				}, story...)
				if !test.unseen {
					s.had(firstMessage, false)
					s.update(func() { s.turns.lose(lost) })
				}
				if test.stored {
					p := outbox.Prompt{Params: json.RawMessage(`{"prompt":"` + continuation + `"}`), AskedAt: time.Now(), Continues: 1}
					if _, err := s.prompts.outbox.AddContinuation(p, s.journal.Last()); err != nil {
						t.Fatal(err)
					}
					s.update(s.prompts.leaveInterrupted)
				}
				if test.given {
					if _, ok, err := s.prompts.outbox.BeginRedelivery(s.journal.Last(), time.Now(), false); err != nil || !ok {
						t.Fatal(ok, err)
					}
				}
				if told := r.told(t, s); told != test.want {
					t.Errorf("the agent gets %q", r.prompts)
				}
				if test.aborted || test.rewound {
					if err := <-aborted; err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}
