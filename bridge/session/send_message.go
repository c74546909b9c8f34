package session

import (
	"encoding/json"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
)

// Message is a prompt ready for the CLI.
type Message struct {
	// Method is the CLI's method; "" is session.send.
	Method string
	// Params are its parameters.
	Params jsonobj.Object
	// Override says that the message's headers take the place of the provider's.
	Override bool
	// Immediate says that it steers the running turn.
	Immediate bool
	// Request is the request id under which it may come again, with its scope; may be empty.
	Request string
}

// Sent is what became of a message.
type Sent struct {
	MessageID string
	// Result is what the CLI answered.
	Result json.RawMessage
	At     journal.Position
	// InMemory says that a disk that fails does not have the message: it would be lost with
	// the bridge's process until it is taken up.
	InMemory bool
	// Waiter waits for the turn's end. It ends with the turn, or when the session's use
	// or its runtime does, so that it need not be closed.
	Waiter *Waiter
	// end is the end of the journal when the CLI answered. At may be before it.
	end journal.Position
}

// Repeated is what is known of a message whose request comes again.
type Repeated struct {
	// ResentID is the new id of a message that was sent to the CLI again, or "".
	ResentID string
	// Waiter waits for its turn, if an earlier process of the bridge began the turn and it had not
	// ended.
	Waiter *Waiter
}

// outboxForm is a prompt's form in the outbox.
func (m Message) outboxForm(params jsonobj.Object) outbox.Prompt {
	return outbox.Prompt{
		Method: m.Method, Params: params.JSON(), Override: m.Override, Immediate: m.Immediate,
		Request: m.Request, AskedAt: time.Now(),
	}
}

// result is what the CLI answers to a message with these ids.
func (m Message) result(ids []string) json.RawMessage {
	var result jsonobj.Object
	if m.Method == "session.sendMessages" {
		text, _ := json.Marshal(ids) // strings always encode
		result.Set("messageIds", text)
	} else {
		result.SetString("messageId", ids[0])
	}
	return result.JSON()
}
