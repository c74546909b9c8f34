package callback

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
)

// MaxPending bounds the callbacks of a session that wait for an answer. One more is
// answered by its fallback at once.
const MaxPending = 1024

// maxRemembered bounds the ids of callbacks that are over.
const maxRemembered = 4096

// Pending is a callback that waits for an answer. Its exported fields do not change
// after Add; what happens to it is the Registry's.
type Pending struct {
	ID   string
	Kind *Kind
	// Params are the request's parameters, or the event's data.
	Params json.RawMessage
	// Tool is the name of the tool that is called, for a tool call; Hook is the type of a
	// hook.
	Tool, Hook string
	// Command is the name of the command that is given.
	Command string
	// For is the one participant that is asked; empty for all who handle the kind.
	For string
	// Agent is the sub-agent that asks; empty for the session's own agent.
	Agent string
	// Pos is where the event is in the journal; zero for a request.
	Pos      journal.Position
	Created  time.Time
	Deadline time.Time
	// Reply hands the answer to a JSON-RPC request; nil for an event.
	Reply func(Reply)
	// Trace is the trace context that the CLI gives it, Span what it is in the bridge's own
	// trace; nil if it has none.
	Trace observe.Remote
	Span  *observe.Span

	timer     *time.Timer
	answering bool
	// by is who claimed it, with what; settled is closed when the claim is over.
	by        Giver
	settled   chan struct{}
	offered   []string
	abstained []string
}

// Giver is a participant with an answer. The zero Giver is nobody in particular.
type Giver struct {
	Participant string
	// Digest is of the answer.
	Digest [sha256.Size]byte
}

// given is how a callback ended.
type given struct {
	by Giver
	at journal.Position
}

// Registry is the pending callbacks of one session. Its methods may be called from any
// goroutine.
type Registry struct {
	room Room

	mu      sync.Mutex
	pending map[string]*Pending
	order   []*Pending
	over    map[string]given
	overIDs []string
}

// Room is where callbacks of several registries wait. Its methods do not wait themselves.
type Room interface {
	// Take takes a place, if there is one.
	Take() bool
	// Give gives it back.
	Give()
}

// NewRegistry returns an empty registry. Its callbacks wait in room; nil has room for all.
func NewRegistry(room Room) *Registry {
	return &Registry{room: room, pending: map[string]*Pending{}, over: map[string]given{}}
}

// Add adds a callback, and calls expire, from a goroutine of its own, when its deadline
// passes. It returns false when there is no room, or when a callback of that id is
// there already.
func (r *Registry) Add(p *Pending, expire func(id string)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.pending[p.ID]; ok || len(r.pending) >= MaxPending || r.room != nil && !r.room.Take() {
		return false
	}
	r.pending[p.ID] = p
	r.order = append(r.order, p)
	delete(r.over, p.ID)
	if !p.Deadline.IsZero() {
		p.timer = time.AfterFunc(time.Until(p.Deadline), func() { expire(p.ID) })
	}
	return true
}

// Offer notes to whom the callback was offered.
func (r *Registry) Offer(id string, participants ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pending[id]; p != nil {
		for _, participant := range participants {
			if !slices.Contains(p.offered, participant) {
				p.offered = append(p.offered, participant)
			}
		}
	}
}

// Offered returns the participants the callback was offered to.
func (r *Registry) Offered(p *Pending) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(p.offered)
}

// Abstain notes that a participant leaves the callback to others, and reports whether
// everybody it was offered to has.
func (r *Registry) Abstain(id, participant string) (all bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pending[id]
	if p == nil {
		return false, r.gone(id)
	}
	if participant == "" {
		return false, nil
	}
	if !slices.Contains(p.abstained, participant) {
		p.abstained = append(p.abstained, participant)
	}
	for _, o := range p.offered {
		if !slices.Contains(p.abstained, o) {
			return false, nil
		}
	}
	return len(p.offered) > 0, nil
}

// Get returns a pending callback.
func (r *Registry) Get(id string) (*Pending, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pending[id]; p != nil {
		return p, nil
	}
	return nil, r.gone(id)
}

// Claim takes a pending callback for answering: nobody else can, until Release or Done.
func (r *Registry) Claim(id string) (*Pending, error) { return r.ClaimBy(id, Giver{}) }

// ClaimBy is Claim, and remembers for whom.
func (r *Registry) ClaimBy(id string, by Giver) (*Pending, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pending[id]
	if p == nil {
		return nil, r.gone(id)
	}
	if p.answering {
		return nil, resolved(id)
	}
	p.answering, p.by, p.settled = true, by, make(chan struct{})
	return p, nil
}

// Repeated reports whether somebody gives the answer again that the callback has had of
// him, and where it came. It waits while that is under way.
func (r *Registry) Repeated(ctx context.Context, id string, by Giver) (at journal.Position, repeated bool) {
	for {
		r.mu.Lock()
		p, over := r.pending[id], r.over[id]
		waiting := p != nil && p.answering && p.by == by
		var settled chan struct{}
		if waiting {
			settled = p.settled
		}
		r.mu.Unlock()
		if !waiting {
			return over.at, p == nil && over.by == by && by != Giver{}
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return at, false
		}
	}
}

// Release gives a claimed callback back: the answer did not reach the CLI. A deadline
// that passed in the meantime found the callback claimed; it counts now.
func (r *Registry) Release(p *Pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.answering {
		p.answering = false
		close(p.settled)
	}
	if p.timer != nil && r.pending[p.ID] == p {
		p.timer.Reset(time.Until(p.Deadline))
	}
}

// Done removes a callback that is over, and reports whether it was pending.
func (r *Registry) Done(id string) (*Pending, bool) { return r.done(id, journal.Position{}, false) }

// Answered is Done for a callback whose answer by the one who claimed it has come to the
// CLI at a position.
func (r *Registry) Answered(id string, at journal.Position) (*Pending, bool) {
	return r.done(id, at, true)
}

func (r *Registry) done(id string, at journal.Position, answered bool) (*Pending, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pending[id]
	if p == nil {
		return nil, false
	}
	delete(r.pending, id)
	if r.room != nil {
		r.room.Give()
	}
	r.order = slices.DeleteFunc(r.order, func(q *Pending) bool { return q == p })
	if p.timer != nil {
		p.timer.Stop()
	}
	end := given{at: at}
	if answered {
		end.by = p.by
	}
	r.over[id] = end
	if p.answering {
		p.answering = false
		close(p.settled)
	}
	r.overIDs = append(r.overIDs, id)
	if len(r.overIDs) > maxRemembered {
		delete(r.over, r.overIDs[0])
		r.overIDs = r.overIDs[1:]
	}
	return p, true
}

// List returns the pending callbacks, oldest first.
func (r *Registry) List() []*Pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.order)
}

// Len returns how many callbacks are pending.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending)
}

// gone tells apart a callback that is over from one that never was. The caller holds mu.
func (r *Registry) gone(id string) error {
	if _, ok := r.over[id]; ok {
		return resolved(id)
	}
	return fault.New(fault.CallbackNotFound, "no callback %q is pending", id).WithField("callback_id").With("callback_id", id)
}

func resolved(id string) error {
	return fault.New(fault.CallbackResolved, "callback %q has been resolved", id).WithField("callback_id").With("callback_id", id)
}
