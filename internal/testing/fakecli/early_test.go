package fakecli_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// Early pieces come before their place, once, as far ahead as the real CLI's, and what follows
// the burst comes behind all of it. A machine that is too slow for a burst has none early.
func TestEarly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tick  time.Duration // of the clock, each time that it is read
		early bool
	}{
		"burst": {50 * time.Microsecond, true},
		"slow":  {time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ticks atomic.Int64
			begin := time.Date(2031, 5, 31, 23, 59, 59, 0, time.UTC)
			now := func() time.Time { return begin.Add(time.Duration(ticks.Add(1)) * c.tick) }
			cli := fakecli.New(fakecli.Options{Now: now,
				Script: fakecli.Script{Prompts: []fakecli.Prompt{{Match: "burst", Turns: []fakecli.Turn{{
					Deltas: &fakecli.Deltas{Count: 8000,
						Early: &fakecli.Early{After: 1100, LagMS: 600, Every: 40, Run: 3}},
				}}}}}})
			t.Cleanup(cli.Close)
			client := dial(t, cli.Connect(), rpcconn.Options{})
			client.must("session.create", `{"sessionId":"s"}`)
			client.send("burst")
			client.next("session.idle")
			checkEarly(t, cli.Log(), idsOf(client.all()), c.early)
		})
	}
}

// checkEarly compares what came with what was emitted.
func checkEarly(t *testing.T, log []fakecli.Entry, came []string, want bool) {
	t.Helper()
	place := map[string]int{}
	var emitted []fakecli.Entry
	for _, e := range log {
		if e.Kind == fakecli.EntryEvent {
			place[e.ID] = len(emitted)
			emitted = append(emitted, e)
		}
	}
	at := func(i int) time.Time {
		when, err := time.Parse(time.RFC3339, emitted[i].Time)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	early, newest, next := 0, -1, 0
	seen := make([]bool, len(emitted))
	for i, id := range came {
		n, ok := place[id]
		if !ok || seen[n] {
			t.Fatalf("event %d was emitted %v, came before %v", i, ok, ok)
		}
		for seen[n] = true; next < len(seen) && seen[next]; {
			next++
		}
		if next <= n { // it came ahead of that one
			early++
			if ahead := at(n).Sub(at(next)); i < 2*1024 || ahead < 450*time.Millisecond ||
				ahead > 1100*time.Millisecond {
				t.Errorf("event %d came %v ahead", i, ahead)
			}
		}
		if newest = max(newest, n); !strings.HasSuffix(emitted[n].Type, "_delta") && n != newest {
			t.Errorf("%s comes behind what was emitted after it", emitted[n].Type)
		}
	}
	if next != len(emitted) || (early > 100) != want || !want && early > 0 {
		t.Errorf("%d of %d events came, %d of them early", next, len(emitted), early)
	}
}
