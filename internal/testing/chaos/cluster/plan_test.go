package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// The sizes of a cluster.
const (
	replicas = 3
	servers  = 3 // of NATS
)

// Timing is how much time a schedule takes, and how much it gives the replicas.
type Timing struct {
	// Lease is the lease of the replicas. Freezes are shorter or longer than it.
	Lease time.Duration
	// Span is the time in which actions begin.
	Span time.Duration
	// MinActions and MaxActions bound the number of actions.
	MinActions, MaxActions int
	// Call bounds one call of a caller; a frozen replica does not answer.
	Call time.Duration
	// Prompts bounds the time between two prompts of a session.
	Prompts time.Duration
	// Unload is how long a session is idle before its replica unloads it, DrainGrace how long a replica waits for turns
	// after SIGTERM.
	Unload, DrainGrace time.Duration
}

// fakeTiming is the timing of schedules with the fake CLI, realTiming with the real one, which takes seconds to start.
var (
	fakeTiming = Timing{
		Lease: 3 * time.Second, Span: 6 * time.Second, MinActions: 3, MaxActions: 6, Call: 4 * time.Second,
		Prompts: 450 * time.Millisecond, Unload: time.Second, DrainGrace: 300 * time.Millisecond,
	}
	realTiming = Timing{
		Lease: 8 * time.Second, Span: 12 * time.Second, MinActions: 2, MaxActions: 4, Call: 10 * time.Second,
		Prompts: 1500 * time.Millisecond, Unload: 3 * time.Second, DrainGrace: 2 * time.Second,
	}
)

// Fault is a kind of fault.
type Fault string

// The faults.
const (
	Kill     Fault = "kill"      // SIGKILL of a replica
	Freeze   Fault = "freeze"    // SIGSTOP of a replica, and SIGCONT
	Drain    Fault = "drain"     // SIGTERM of a replica
	StopNATS Fault = "stop nats" // a NATS server is shut down

	KillNATS   Fault = "kill nats"   // SIGKILL of a NATS server
	FreezeNATS Fault = "freeze nats" // SIGSTOP of a NATS server, and SIGCONT
	FillNATS   Fault = "fill nats"   // the disk of a NATS server is full; the server is restarted when it has room
	PartNATS   Fault = "part nats"   // nothing passes between a NATS server and the others
	CutNATS    Fault = "cut nats"    // nothing passes between a replica and the NATS servers
	CutPeers   Fault = "cut peers"   // nothing passes between a replica and the others, which relay calls to it
	SlowNATS   Fault = "slow nats"   // what passes between a replica and the NATS servers is late
)

// Directions are the directions of a link in which an action works: from the side that connects, and to it.
type Directions string

// The directions of an action.
const (
	Both  Directions = "both"
	Forth Directions = "forth"
	Back  Directions = "back"
)

// reverse returns the directions as the other side sees them.
func (d Directions) reverse() Directions {
	switch d {
	case Forth:
		return Back
	case Back:
		return Forth
	}
	return d
}

// Action is a fault with its end.
type Action struct {
	// At is when it strikes, since the start of the schedule.
	At    time.Duration
	Fault Fault
	// Target is the number of the replica or NATS server.
	Target int
	// For is how long the target stays away.
	For time.Duration
	// Directions are those of a cut; "" for other faults.
	Directions Directions
}

func (a Action) end() time.Duration { return a.At + a.For }

// group is the targets of which an action takes one: actions of the same group and target do not overlap.
func (a Action) group() string {
	switch a.Fault {
	case StopNATS, KillNATS, FreezeNATS, FillNATS, PartNATS:
		return "nats" // two servers of three are needed, so one at a time
	case CutNATS, SlowNATS:
		return fmt.Sprint("link to nats ", a.Target)
	case CutPeers:
		return fmt.Sprint("link to replica ", a.Target)
	}
	return fmt.Sprint("replica ", a.Target)
}

// Plan is a schedule.
type Plan struct {
	Seed    uint64
	Real    bool // the replicas have the real CLI
	Timing  Timing
	Actions []Action // in the order of At
}

// Draw makes the schedule of a seed, for the fake CLI or for the real one. It depends on nothing else. At least one
// action takes a replica away.
func Draw(seed uint64, realCLI bool) Plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	p := Plan{Seed: seed, Real: realCLI, Timing: fakeTiming}
	if realCLI {
		p.Timing = realTiming
	}
	t := p.Timing
	free := map[string]time.Duration{} // when the targets of a group are back
	n := t.MinActions + rng.IntN(t.MaxActions-t.MinActions+1)
	starts := make([]time.Duration, n)
	for i := range starts {
		starts[i] = time.Duration(rng.Int64N(int64(t.Span))).Round(time.Millisecond)
	}
	slices.Sort(starts)
	for i, at := range starts {
		a := drawAction(rng, t, i == 0)
		a.At = max(at, free[a.group()])
		free[a.group()] = a.end() + time.Second
		p.Actions = append(p.Actions, a)
	}
	slices.SortStableFunc(p.Actions, func(a, b Action) int { return int(a.At - b.At) })
	return p
}

// drawAction draws a fault, its target and its length; with replica it is not one of a NATS server.
func drawAction(rng *rand.Rand, t Timing, replica bool) Action {
	between := func(from, to time.Duration) time.Duration {
		return (from + time.Duration(rng.Int64N(int64(to-from)))).Round(time.Millisecond)
	}
	kinds := []Fault{Kill, Kill, Freeze, Freeze, Drain, Drain}
	if !replica {
		kinds = append(kinds, StopNATS, KillNATS, FreezeNATS, FillNATS, PartNATS, CutNATS, CutNATS, CutPeers, SlowNATS)
	}
	a := Action{Fault: kinds[rng.IntN(len(kinds))], Target: rng.IntN(replicas)}
	switch a.Fault {
	case Freeze, CutNATS, CutPeers, PartNATS:
		if a.For = between(t.Lease/10, t.Lease*2/3); rng.IntN(2) == 0 {
			a.For = between(t.Lease+t.Lease/3, 2*t.Lease)
		}
		if a.Fault != Freeze {
			a.Directions = []Directions{Both, Both, Forth, Back}[rng.IntN(4)]
		}
	case StopNATS, KillNATS, FreezeNATS, FillNATS:
		a.Target, a.For = rng.IntN(servers), between(200*time.Millisecond, 3*time.Second)
	case SlowNATS:
		a.For = between(time.Second, 4*time.Second)
	default:
		a.For = between(0, 2*t.Lease)
	}
	return a
}

// String lists the actions, for reports.
func (p Plan) String() string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "seed %d", p.Seed)
	if p.Real {
		b.WriteString(" with the real CLI")
	}
	b.WriteByte(':')
	for _, a := range p.Actions {
		_, _ = fmt.Fprintf(&b, " %v %s %d for %v", a.At, a.Fault, a.Target, a.For)
		if a.Directions != "" {
			_, _ = fmt.Fprintf(&b, " %s", a.Directions)
		}
		b.WriteByte(';')
	}
	return b.String()
}
