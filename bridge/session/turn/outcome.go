package turn

import (
	"iter"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
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
	// Silent reports that the CLI has sent no event that shows the end.
	Silent bool
	// Err is set when there was no turn: the message was accepted and lost.
	Err error
}

// Lost reports whether the turn ended with its runtime.
func (o Outcome) Lost() bool { return o.Status == runtimeLost && o.Err == nil }

// Proto gives an outcome the form of the API.
func (o Outcome) Proto() *bridgev1.TurnOutcome {
	out := &bridgev1.TurnOutcome{Status: o.Status, Error: o.Error, EndPosition: position(o.End)}
	if out.Error == nil {
		out.Error = unreported(o.Status)
	}
	if o.Message != nil {
		var d struct{ Content string }
		event.Data(o.Message, &d)
		out.Text, out.MessagePosition = d.Content, position(o.Message.Pos)
	}
	return out
}

// unreported returns the error of a turn whose end the CLI did not report, with what its caller can do; nil for others.
func unreported(status bridgev1.TurnStatus) *bridgev1.TurnError {
	switch status {
	case runtimeLost:
		return &bridgev1.TurnError{
			ErrorType: "runtime_lost", Reason: fault.RuntimeLost,
			Message: "the CLI process ended during the turn; the session and what the agent did until then are kept, and the " +
				"next prompt starts a new process; with on_interruption CONTINUE the server has the agent continue such turns",
		}
	case stalled:
		return &bridgev1.TurnError{
			ErrorType: "stalled", Message: "the CLI reported nothing for stall_timeout, or for model_call_timeout while it " +
				"waited for a model, so the turn was aborted; send the prompt again, or raise these settings of the server",
		}
	}
	return nil
}

func position(p journal.Position) *bridgev1.Position {
	return &bridgev1.Position{Epoch: p.Epoch, Seq: p.Seq}
}

// Replay returns how the turn of a message ended, from the message and the events after it. If no event has ended it, ended
// is false: its runtime was lost.
func Replay(events iter.Seq[*journal.Record], classify Classifier) (out Outcome, ended bool) {
	m, w := New(Bounds{}, classify), NewWaiter(0)
	m.running = true
	m.AwaitTurn(w)
	m.Expect(w)
	for rec := range events {
		if m.Apply(rec, m.lastEvent); w.finished {
			return w.out, true
		}
	}
	return Outcome{Status: runtimeLost, Message: m.message}, false
}

// Interruption is what is known of turns that ended with their runtime.
type Interruption struct {
	// Last reports that the session's last turn ended so, and that the agent was not told to continue it.
	Last bool `json:"last,omitempty"`
	// Aborted reports that a caller aborted it, as far as the journal was in step with the CLI's history.
	Aborted bool `json:"aborted,omitempty"`
	// Told is how often the agent was told to continue since a turn ended in another way.
	Told int `json:"told,omitempty"`
}
