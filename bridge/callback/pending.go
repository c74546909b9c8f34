package callback

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
)

// MaxPending bounds the pending callbacks of a session. Further ones are answered by their fallback at once.
const MaxPending = 1024

// maxRemembered bounds the remembered ids of resolved callbacks.
const maxRemembered = 4096

// Pending is a callback waiting for an answer. Its exported fields do not change after Add; the Registry owns the
// rest.
type Pending struct {
	ID   string
	Kind *Kind
	// Params are the request's parameters, or the event's data.
	Params json.RawMessage
	// Tool is the name of the tool in a tool call; Hook is the type of a hook.
	Tool, Hook string
	// Command is the name of a command.
	Command string
	// For is the only participant that receives the callback; empty for all that handle the kind.
	For string
	// Agent is the sub-agent that asks; empty for the main agent.
	Agent string
	// Pos is the event's position in the journal; zero for a request.
	Pos      journal.Position
	Created  time.Time
	Deadline time.Time
	// Reply sends the answer to a JSON-RPC request; nil for an event.
	Reply func(Reply)
	// Trace is the trace context from the CLI, Span the bridge's span; nil if there is none.
	Trace observe.Remote
	Span  *observe.Span
	// EndedAt is when it ended: for the CLI, if that has said so before the reply to the answer was handled. It is set once
	// the callback is no longer pending.
	EndedAt time.Time

	timer     *time.Timer
	answering bool
	// over is the number, among all ends, of the CLI's word that it waits for no answer, which came while one was being
	// delivered; zero without it.
	over   uint64
	overAt time.Time // when over was set
	// unreached: the answer that ends the callback has not reached the CLI, as far as is known.
	unreached bool
	// uncertain: an answer was released of which it is not known whether it reached the CLI.
	uncertain bool
	// by is the claimant with its answer; settled is closed when the claim ends.
	by        Responder
	settled   chan struct{}
	offered   []string
	abstained []string
}

// Responder is a participant with an answer. The zero Responder stands for no particular participant.
type Responder struct {
	Participant string
	// Digest is the digest of the answer.
	Digest [sha256.Size]byte
}

// given is the end of a callback.
type given struct {
	by Responder
	at journal.Position
	n  uint64 // its number among all ends
}

// Registry has the pending callbacks of one session. It is safe for concurrent use: its mu guards all of its state.
type Registry struct {
	room Room

	mu      sync.Mutex
	pending map[string]*Pending
	order   []*Pending
	over    map[string]given
	overIDs []string
	ends    uint64
}

// Room limits the callbacks of several registries. Its methods do not block.
type Room interface {
	// Take takes a place, and reports whether one was free.
	Take() bool
	// Give returns a place.
	Give()
}

// NewRegistry returns an empty registry. Its callbacks take places in room; a nil room has no limit.
func NewRegistry(room Room) *Registry {
	return &Registry{room: room, pending: map[string]*Pending{}, over: map[string]given{}}
}

// Add adds a callback, and calls expire in a new goroutine when its deadline passes. It returns false if there is no
// place or if the id is already pending: the CLI waits for it, whatever an earlier process has said.
func (r *Registry) Add(p *Pending, expire func(id string)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, ok := r.pending[p.ID]; ok {
		before.over = 0
		return false
	}
	if len(r.pending) >= MaxPending || r.room != nil && !r.room.Take() {
		r.remember(p.ID, given{}) // the caller answers it, and the CLI tells its end
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

// Offer records the participants that the callback was offered to.
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

// Offered returns the participants that the callback was offered to.
func (r *Registry) Offered(p *Pending) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(p.offered)
}

// Abstain records that a participant abstains, and reports whether all participants that it was offered to have.
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

// Claim claims a pending callback for an answer. Other claims fail until Unclaim or Done.
func (r *Registry) Claim(id string) (*Pending, error) { return r.ClaimBy(id, Responder{}) }

// ClaimBy is Claim with the claimant.
func (r *Registry) ClaimBy(id string, by Responder) (*Pending, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pending[id]
	switch {
	case p == nil:
		return nil, r.gone(id)
	case !p.claim(by):
		return nil, resolved(id)
	}
	return p, nil
}

// ClaimOver is Claim, without an error, of a callback for which the CLI does not wait: it usually says so after an answer.
// It returns nil if the callback cannot be claimed. If an answer is being delivered, Unclaim then reports the end.
func (r *Registry) ClaimOver(id string) *Pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pending[id]
	end, ended := r.over[id]
	switch {
	case p != nil && p.claim(Responder{}):
		return p
	case p != nil:
		r.ends++
		p.over, p.overAt = r.ends, time.Now()
	case ended: // perhaps by an answer of which it was not known whether it had reached the CLI
		r.ends++
		end.n = r.ends
		r.remember(id, end)
	}
	return nil
}

// Awaited notes that the CLI waited for a callback after Ends returned a number, whatever an earlier process has said.
func (r *Registry) Awaited(id string, ends uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pending[id]; p != nil && p.over <= ends {
		p.over = 0
	}
}

// claim claims the callback. The caller holds the registry's lock.
func (p *Pending) claim(by Responder) bool {
	if p.answering {
		return false
	}
	p.answering, p.by, p.settled = true, by, make(chan struct{})
	return true
}

// Repeated reports whether a participant repeats the answer that it gave to the callback, and the position of that
// answer. While the answer is being delivered, Repeated returns a channel that is closed when it has been, or failed to:
// the caller then asks again.
func (r *Registry) Repeated(id string, by Responder) (at journal.Position, repeated bool, settled <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, over := r.pending[id], r.over[id]
	if p != nil && p.answering && p.by == by {
		return at, false, p.settled
	}
	return over.at, p == nil && over.by == by && by != Responder{}, nil
}

// Unreached notes that the CLI may wait for the answer that is about to end a callback: EndedSince does not know that end.
func (r *Registry) Unreached(p *Pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.unreached = true
}

// Uncertain reports whether the CLI may have an earlier answer, whose claim ended with Unclaim.
func (r *Registry) Uncertain(p *Pending) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.uncertain
}

// Unclaim ends a claim whose answer did not reach the CLI, as far as is known. A deadline that passed during the claim
// takes effect now. If the CLI has said meanwhile that it does not wait for an answer, Unclaim keeps the claim and returns
// true: the caller ends the callback.
func (r *Registry) Unclaim(p *Pending) (over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.over > 0 && r.pending[p.ID] == p {
		return true
	}
	p.uncertain = true
	if p.answering {
		p.answering = false
		close(p.settled)
	}
	if p.timer != nil && r.pending[p.ID] == p {
		p.timer.Reset(time.Until(p.Deadline))
	}
	return false
}

// Done removes exactly this callback, and reports whether it was pending: if the CLI has asked it again meanwhile, that made
// another one.
func (r *Registry) Done(p *Pending) bool { return r.done(p, journal.Position{}, false) }

// Answered is Done for a callback whose claimant's answer reached the CLI at a position.
func (r *Registry) Answered(p *Pending, at journal.Position) bool { return r.done(p, at, true) }

func (r *Registry) done(p *Pending, at journal.Position, answered bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := p.ID
	if r.pending[id] != p {
		return false
	}
	delete(r.pending, id)
	if p.EndedAt = time.Now(); p.over > 0 {
		p.EndedAt = p.overAt
	}
	if r.room != nil {
		r.room.Give()
	}
	r.order = slices.DeleteFunc(r.order, func(q *Pending) bool { return q == p })
	if p.timer != nil {
		p.timer.Stop()
	}
	r.ends++
	end := given{at: at, n: r.ends}
	if p.unreached {
		end.n = 0
	}
	if answered {
		end.by = p.by
	}
	r.remember(id, end)
	if p.answering {
		p.answering = false
		close(p.settled)
	}
	return true
}

// remember remembers the end of a callback. The caller holds the lock.
func (r *Registry) remember(id string, end given) {
	if _, known := r.over[id]; !known {
		r.overIDs = append(r.overIDs, id)
	}
	r.over[id] = end
	if len(r.overIDs) > maxRemembered {
		delete(r.over, r.overIDs[0])
		r.overIDs = r.overIDs[1:]
	}
}

// Ends returns how many callbacks have ended, for EndedSince and Awaited.
func (r *Registry) Ends() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ends
}

// EndedSince reports whether a callback has ended after Ends returned a number, and is not pending again. It
// knows the last maxRemembered ends.
func (r *Registry) EndedSince(id string, ends uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	end, over := r.over[id]
	return over && r.pending[id] == nil && end.n > ends
}

// List returns the pending callbacks, oldest first.
func (r *Registry) List() []*Pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.order)
}

// Len returns the number of pending callbacks.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending)
}

// gone returns the error for an id: resolved or unknown. The caller holds mu.
func (r *Registry) gone(id string) error {
	if _, ok := r.over[id]; ok {
		return resolved(id)
	}
	return fault.New(fault.CallbackNotFound, "no callback %q is pending", id).WithField("callback_id").With("callback_id", id)
}

func resolved(id string) error {
	return fault.New(fault.CallbackResolved, "callback %q is already resolved", id).WithField("callback_id").With("callback_id", id)
}
