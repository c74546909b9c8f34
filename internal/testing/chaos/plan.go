package main

import (
	"math/rand/v2"
	"time"
)

// Bounds of a schedule. Sessions grow in its course.
const (
	minSessions = 3
	maxSessions = 6
	minFaults   = 6
)

// Plan is what a schedule is made from.
type Plan struct {
	Seed  uint64 `json:"seed"`
	Steps int    `json:"steps"`
	// CLI is the real CLI's executable; empty is the fake CLI.
	CLI string `json:"cli,omitempty"`
}

func (p Plan) real() bool { return p.CLI != "" }

// form names the CLI of the plan.
func (p Plan) form() string {
	if p.real() {
		return "real"
	}
	return "fake"
}

// step is one thing to do.
type step struct {
	op    string
	pick  [4]uint32 // which session, caller, flavour …
	after time.Duration
}

// rng is a separate source of random numbers, for goroutines beside the schedule.
func (s step) rng(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(s.pick[0])<<32|uint64(s.pick[1])))
}

// op is a kind of step.
type op struct {
	name   string
	weight int
	fault  bool
	// fakeOnly: the real CLI cannot do it.
	fakeOnly bool
	do       func(*world, step)
}

// ops are all kinds of steps. It is a function since some of what they do draws steps.
func ops() []op {
	return []op{
		{name: "send", weight: 30, do: (*world).send},
		{name: "send_and_wait", weight: 14, do: (*world).sendAndWait},
		{name: "run", weight: 8, do: (*world).run},
		{name: "repeat", weight: 12, do: (*world).repeat},
		{name: "create", weight: 3, do: (*world).create},
		{name: "abort", weight: 6, do: (*world).abort},
		{name: "log", weight: 8, do: (*world).logEvent},
		{name: "set_model", weight: 3, fakeOnly: true, do: (*world).setModel},
		{name: "look", weight: 8, do: (*world).look},
		{name: "resolve", weight: 18, do: (*world).resolve},
		{name: "disconnect", weight: 2, do: (*world).disconnect},
		{name: "resume", weight: 4, do: (*world).resume},
		{name: "throw_away", weight: 2, do: (*world).throwAway},
		{name: "subscribe", weight: 10, do: (*world).subscribe},
		{name: "unsubscribe", weight: 6, do: (*world).unsubscribe},
		{name: "attach", weight: 10, do: (*world).attach},
		{name: "leave", weight: 6, do: (*world).leave},
		{name: "rest", weight: 2, do: (*world).rest},
		{name: "cut", weight: 5, fault: true, do: (*world).cut},
		{name: "kill", weight: 4, fault: true, do: (*world).kill},
		{name: "deaf", weight: 1, fault: true, do: (*world).deafen},
		{name: "restart", weight: 1, fault: true, do: (*world).restart},
		{name: "crash", weight: 2, fault: true, do: (*world).crash},
	}
}

// draw makes the schedule of a plan: it depends on nothing else.
func draw(p Plan) []step {
	rng := rand.New(rand.NewPCG(p.Seed, 0))
	var can []op
	total := 0
	for _, o := range ops() {
		if !o.fakeOnly || !p.real() {
			can = append(can, o)
			total += o.weight
		}
	}
	pick := func(accept func(op) bool) op {
		for {
			n := rng.IntN(total)
			for _, o := range can {
				if n -= o.weight; n < 0 {
					if accept(o) {
						return o
					}
					break
				}
			}
		}
	}
	faultAt := map[int]bool{}
	for len(faultAt) < minFaults {
		faultAt[p.Steps/10+rng.IntN(max(1, p.Steps*8/10))] = true
	}
	count := map[string]int{}
	steps := make([]step, p.Steps)
	for i := range steps {
		o := pick(func(o op) bool { return (!faultAt[i] || o.fault) && count[o.name] < limit(o.name) })
		count[o.name]++
		steps[i] = step{op: o.name, pick: [4]uint32{rng.Uint32(), rng.Uint32(), rng.Uint32(), rng.Uint32()}}
		if rng.IntN(3) > 0 {
			steps[i].after = time.Duration(rng.IntN(6000)) * time.Microsecond
		}
	}
	return steps
}

// limit is how often a kind of step may come in a schedule: some take their time.
func limit(name string) int {
	switch name {
	case "deaf", "restart", "rest":
		return 2
	case "crash":
		return 3
	case "kill":
		return 8
	}
	return 1 << 30
}
