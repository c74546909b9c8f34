package outbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// Message is one message of a prompt, as the history shows it.
type Message struct {
	// texts are the digests of what its content may be: its prompt, or what is displayed in
	// its place.
	texts [][sha256.Size]byte
}

// Said is a user's message that the CLI's history has, or the journal, or an abort.
type Said struct {
	// Abort says that it is an abort, which has neither an id nor a content.
	Abort bool
	// MessageID is the CLI's id of it. CLI 1.0.81 tells none.
	MessageID string
	Content   string
	// At is when it was taken up, by the CLI's clock, which is the bridge's.
	At time.Time
	// Pos is where it is in the journal; zero if that lacks it.
	Pos journal.Position
	// History says that the CLI's history has it, and not the journal alone.
	History bool
}

// Verdict is what the history says of a prompt.
type Verdict uint8

// The verdicts.
const (
	// Untaken: neither the history nor the journal has it.
	Untaken Verdict = iota
	// Taken: the history has all of it.
	Taken
	// Forgotten: the journal has it and the history lacks it: the CLI took it up, and was
	// killed before it wrote that down. The model may have been asked.
	Forgotten
	// Partly: the history has the first of its messages.
	Partly
	// Overtaken: neither the history nor the journal has it, but the history has a later prompt:
	// it can no longer be sent in order.
	Overtaken
	// Removed: neither the history nor the journal has it, and an abort came behind the CLI's answer, or behind the
	// delivery of a continuation.
	Removed
)

// Decision is the verdict on a prompt.
type Decision struct {
	Verdict Verdict
	// Done is how many of its messages were taken up, for Partly.
	Done int
	// At is the journal's position of the last of the prompt's messages. It is zero if the journal lacks that
	// message: no reader knows then that the CLI accepted it.
	At journal.Position
	// IDs are the ids of the prompt's messages that were taken up since the latest delivery. CLI 1.0.81 tells none.
	IDs []string
}

// clockSlack is by how much a message may seem older than the prompt that it is.
const clockSlack = 2 * time.Second

// Decide finds out the outcome of prompts from the messages of the conversation. Entries are in the order in
// which the CLI received them; messages are in the order of the conversation. Each message belongs to at most
// one prompt.
func Decide(entries []Entry, said []Said) []Decision {
	claimed := make([]bool, len(said))
	out := make([]Decision, len(entries))
	for i := range entries {
		e := &entries[i]
		d := &out[i]
		messages := e.said()
		messages = messages[min(e.Done, len(messages)):]
		found, history := 0, true
		for k, m := range messages {
			at := find(e, m, k, said, claimed)
			if at < 0 {
				break
			}
			claimed[at] = true
			found++
			history = history && said[at].History
			d.At = said[at].Pos
			if id := said[at].MessageID; id != "" {
				d.IDs = append(d.IDs, id)
			}
		}
		switch {
		case found == 0 && (len(e.IDs) > 0 || e.prompt.Continues > 0) && e.removed(said):
			d.Verdict = Removed
		case found == 0:
		case !history:
			d.Verdict = Forgotten
		case found == len(messages):
			d.Verdict = Taken
		default:
			d.Verdict, d.Done = Partly, e.Done+found
		}
	}
	markOvertaken(entries, out)
	return out
}

// markOvertaken changes Untaken to Overtaken for prompts before one that the history has.
// Immediate prompts do not wait in the CLI's queue: they overtake others, and may be overtaken.
func markOvertaken(entries []Entry, out []Decision) {
	taken := false
	for i := len(out) - 1; i >= 0; i-- {
		switch v := out[i].Verdict; {
		case entries[i].prompt.Immediate:
		case v == Taken || v == Partly:
			taken = true
		case v == Untaken && taken:
			out[i].Verdict = Overtaken
		}
	}
}

// find looks for the k-th message of a prompt's latest delivery.
func find(e *Entry, m Message, k int, said []Said, claimed []bool) int {
	for i, one := range said {
		if claimed[i] || one.Abort {
			continue
		}
		if one.MessageID != "" && k < len(e.IDs) {
			if one.MessageID == e.IDs[k] {
				return i
			}
			continue
		}
		if e.after(one) && m.Says(one.Content) {
			return i
		}
	}
	return -1
}

// after reports whether a message can belong to the prompt: it is not older than the prompt's delivery.
func (e *Entry) after(one Said) bool {
	if one.Pos.Epoch == e.Before.Epoch && one.Pos.Seq > 0 {
		return one.Pos.Seq > e.Before.Seq
	}
	return !one.At.Before(e.GivenAt.Add(-clockSlack))
}

// removed reports whether an abort came behind the CLI's answer: it removes the messages that were not taken up. For a
// continuation, an abort behind its delivery is enough: the caller means the turn that it would continue. An abort that the
// journal lacks came behind all that the bridge has read.
func (e *Entry) removed(said []Said) bool {
	after := cmp.Or(e.AnsweredAt, e.Before)
	if e.prompt.Continues > 0 {
		after = e.Before
	}
	return slices.ContainsFunc(said, func(one Said) bool {
		switch {
		case !one.Abort:
			return false
		case one.Pos.Seq == 0: // the CLI's clock has milliseconds
			return !one.At.Before(e.GivenAt.Truncate(time.Millisecond))
		case one.Pos.Epoch == after.Epoch:
			return one.Pos.Seq > after.Seq
		}
		return one.At.After(e.GivenAt)
	})
}

// Says reports whether a message of the history with this content can be the message.
func (m Message) Says(content string) bool {
	sum := sha256.Sum256([]byte(content))
	for _, text := range m.texts {
		if text == sum {
			return true
		}
	}
	return false
}

// The CLI's methods that begin turns.
const (
	methodSend     = "session.send"
	methodMessages = "session.sendMessages"
	methodFleet    = "session.fleet.start"
)

// fleetWords are what the CLI puts before the prompt of a fleet.
const fleetWords = "Fleet deployed: "

// words are the members of a message that the history may show.
type words struct {
	Prompt        string  `json:"prompt"`
	DisplayPrompt *string `json:"displayPrompt"`
}

func (w words) message(before string) Message {
	m := Message{texts: [][sha256.Size]byte{sha256.Sum256([]byte(before + w.Prompt))}}
	if w.DisplayPrompt != nil {
		m.texts = append(m.texts, sha256.Sum256([]byte(*w.DisplayPrompt)))
	}
	return m
}

// MessagesOf returns the messages of a prompt, as the history shows them.
func MessagesOf(p Prompt) (out []Message) {
	switch p.Method {
	case "", methodSend, methodFleet:
		var w words
		_ = json.Unmarshal(p.Params, &w) // what is no prompt is found by its id alone
		before := ""
		if p.Method == methodFleet {
			before = fleetWords
		}
		return []Message{w.message(before)}
	case methodMessages:
		var list struct{ Messages []words }
		_ = json.Unmarshal(p.Params, &list) // as above
		for _, w := range list.Messages {
			out = append(out, w.message(""))
		}
	}
	return out
}

// rest are the parameters of a prompt without the first of its messages.
func rest(p Prompt, done int) json.RawMessage {
	if done == 0 || p.Method != methodMessages {
		return p.Params
	}
	var params map[string]json.RawMessage
	var list []json.RawMessage
	if json.Unmarshal(p.Params, &params) != nil || json.Unmarshal(params["messages"], &list) != nil || done > len(list) {
		return p.Params
	}
	text, err := json.Marshal(list[done:])
	if err != nil {
		return p.Params
	}
	params["messages"] = text
	if text, err = json.Marshal(params); err != nil {
		return p.Params
	}
	return text
}

// Obstacle returns the reason for which an unaccepted prompt must not be sent again, or "".
func (e *Entry) Obstacle() string {
	switch {
	case e.Edited:
		return "a later change of the CLI's queue may have withdrawn it"
	case e.Deliveries >= MaxDeliveries:
		return "each runtime that received it ended"
	case e.prompt.Params == nil && len(e.prompt.Lacks) > 0:
		return "the bridge was restarted and does not store its secrets"
	case e.prompt.Method == methodFleet:
		return "a fleet must not be started twice"
	}
	return ""
}
