package copilot

import bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"

// Outcome is how a turn ended. The methods of a nil Outcome return what an outcome without a value has.
type Outcome struct {
	// The id of the message that began the turn; empty if it is not known.
	MessageID string
	// The outcome as a message, with positions of the agent's last message and of the end.
	Proto *bridgev1.TurnOutcome
}

// TurnError is why a turn did not complete.
type TurnError = bridgev1.TurnError

// Status says how the turn ended.
func (o *Outcome) Status() TurnStatus { return wordOf[TurnStatus](o.proto().GetStatus()) }

// Text is the agent's last message; empty if there is none.
func (o *Outcome) Text() string { return o.proto().GetText() }

// Error is why the turn did not complete, and what to do; nil if the server did not say. [Outcome.Err] is a Go error.
func (o *Outcome) Error() *TurnError { return o.proto().GetError() }

// Err is nil for a turn that completed, and an [*OutcomeError] for any other.
func (o *Outcome) Err() error {
	if o.Status() == TurnCompleted {
		return nil
	}
	return &OutcomeError{Outcome: o}
}

// String is the status, and the error's message or else the text.
func (o *Outcome) String() string {
	detail := o.Error().GetMessage()
	if detail == "" {
		detail = o.Text()
	}
	if detail == "" {
		return string(o.Status())
	}
	return string(o.Status()) + ": " + detail
}

func (o *Outcome) proto() *bridgev1.TurnOutcome {
	if o == nil {
		return nil
	}
	return o.Proto
}
