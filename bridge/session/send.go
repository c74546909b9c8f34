package session

import (
	"context"
	"errors"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Sender sends messages to the CLI: in order, with the session's prompts kept in the outbox, with headers that replace
// the provider's, and with an answer for each message whose runtime ended before it replied.
//
// Prompts lets one send at a time begin; a Sender holds it until the CLI has replied, or until the turn has ended
// whose headers replace the provider's. A goroutine of the host is started for each such turn, which ends with the turn,
// the runtime or the host, and one for each message that has to wait before the CLI can have it, which ends when the CLI
// has it, or with its caller or the host.
type Sender struct {
	s *Session
	// replacedIn is the runtime in which a turn runs whose headers replace the provider's; nil
	// without such a turn. The session's lock guards it.
	replacedIn Runtime
}

// storagePatience is how long a message waits for storage across a network that does not take the session's events.
const storagePatience = 2 * time.Second

// methodSend is the CLI's method for a message.
const methodSend = "session.send"

// errUnanswered is the cause with which the waiting for the CLI's answer to a message ends.
var errUnanswered = errors.New("the CLI does not answer")

// unavailable is the error of a message that cannot be stored now.
func unavailable(cause error) error {
	return fault.Wrap(cause, fault.SessionUnavailable, "the storage does not take the session's messages now").
		WithRetry(time.Second)
}

// forget ends the waiting for a message whose sender learns that it failed.
func (sd *Sender) forget(w *Waiter) {
	w.Close()
	sd.s.prompts.forget(w.state)
}

// unanswered is the error of a message to which the CLI did not reply.
func (sd *Sender) unanswered(method string, bound time.Duration) error {
	sd.s.host.Logger().Error("the CLI did not reply to a message",
		"session_id", sd.s.id, "method", method, "waited", bound)
	return fault.Wrap(errors.Join(ErrUnsettled, errUnanswered), fault.SendUnconfirmed,
		"no reply to %s within %v: the CLI may have accepted the message", method, bound)
}

// Repeat returns what has become of a message that the CLI accepted. It fails with SEND_UNCONFIRMED
// if the message is not part of the conversation. Where only the history can show that, the session
// is loaded.
func (sd *Sender) Repeat(ctx context.Context, id string) (Repeated, error) {
	if id == "" {
		return Repeated{}, nil
	}
	box := sd.s.prompts.Outbox()
	if sd.s.loader.State() == Unloaded && box.Pending(id) {
		if _, err := sd.s.loader.Load(ctx); fault.ReasonOf(err) == fault.SessionUnavailable { // another server may know it
			return Repeated{}, err
		} else if err != nil {
			return Repeated{}, fault.Wrap(err, fault.SendUnconfirmed,
				"the runtime ended, and the session cannot be loaded to find out whether the CLI accepted the message").With("message_id", id)
		}
	}
	if why, ok := box.LostBecause(id); ok {
		return Repeated{}, lostError([]string{id}, why)
	}
	sd.s.mu.Lock()
	defer sd.s.mu.Unlock()
	out := Repeated{ResentID: box.MovedTo(id)}
	if w := sd.s.prompts.Restored(id); w != nil {
		out.Waiter = sd.s.turns.waiter(w)
	}
	return out, nil
}
