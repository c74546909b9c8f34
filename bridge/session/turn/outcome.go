package turn

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Outcome is how a turn ended.
type Outcome struct {
	Status  bridgev1.TurnStatus
	Error   *bridgev1.TurnError
	Message *journal.Record
	End     journal.Position
	// Err is set when there was no turn: the message was accepted and lost.
	Err error
}

// Proto gives an outcome the form of the API.
func (o Outcome) Proto() *bridgev1.TurnOutcome {
	out := &bridgev1.TurnOutcome{Status: o.Status, Error: o.Error, EndPosition: position(o.End)}
	if o.Message != nil {
		var d struct{ Content string }
		event.Data(o.Message, &d)
		out.Text, out.MessagePosition = d.Content, position(o.Message.Pos)
	}
	return out
}

func position(p journal.Position) *bridgev1.Position {
	return &bridgev1.Position{Epoch: p.Epoch, Seq: p.Seq}
}

// Replay finds out how the turn of a message ended, from the message and the events after it. Make one
// with NewReplay.
type Replay struct {
	m *Machine
	w Waiter
}

// NewReplay returns a replay of the turn of a message, which is the first event.
func NewReplay(classify Classifier) *Replay {
	r := &Replay{m: New(Bounds{}, classify)}
	r.m.running = true
	r.w.Init()
	r.w.accepted, r.w.begun, r.w.known = true, true, true
	r.m.Expect(&r.w)
	return r
}

// Apply takes the next event, and reports whether the turn goes on.
func (r *Replay) Apply(rec *journal.Record) bool {
	r.m.Apply(rec, r.m.lastEvent)
	return !r.w.finished
}

// Outcome is how the turn ended. If no event has ended it, its runtime was lost at a position.
func (r *Replay) Outcome(lostAt journal.Position) Outcome {
	if r.w.finished {
		return r.w.out
	}
	return Outcome{Status: runtimeLost, Message: r.m.message, End: lostAt}
}

// Interruption is what is known of turns that ended with their runtime.
type Interruption struct {
	// Last reports that the session's last turn ended so, and that the agent was not told to continue it.
	Last bool `json:"last,omitempty"`
	// Told is how often the agent was told to continue since a turn ended in another way.
	Told int `json:"told,omitempty"`
}
