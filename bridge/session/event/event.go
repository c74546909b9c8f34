// Package event makes journal records of the CLI's events and reads their data. It owns
// nothing; Names is the only type with state, and belongs to the goroutine that reads a
// connection.
package event

import (
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
)

// Parse makes a record of an event's JSON, which it takes over.
func Parse(text json.RawMessage) (*journal.Record, error) {
	head, err := translate.ScanEvent(text)
	if err != nil {
		return nil, err
	}
	return Record(head, text, nil), nil
}

// Names remembers the names that events repeat, so that not every one allocates its own, and
// what is known of them. It is for one goroutine; a nil one remembers nothing.
type Names map[string]name

// name is the name of a type or an agent.
type name struct {
	text string
	// plain is the Plain of records with this type.
	plain bool
}

// maxNames bounds Names: past it, a name it has not seen is just not remembered.
const maxNames = 1024

func (n Names) of(text []byte) name {
	if known, ok := n[string(text)]; ok {
		return known
	}
	fresh := name{text: string(text)}
	fresh.plain = !journal.KeptTypes[fresh.text] && callback.ForEvent(fresh.text) == nil && !callback.Ends(fresh.text)
	if n != nil && len(n) < maxNames {
		n[fresh.text] = fresh
	}
	return fresh
}

// Record makes a record of an event whose head is known. It takes text over.
func Record(head translate.EventHead, text []byte, names Names) *journal.Record {
	kind := names.of(head.Type)
	rec := &journal.Record{
		Type: kind.text, Plain: kind.plain, ID: journal.ParseID(head.ID),
		Ephemeral: head.Ephemeral, JSON: text,
	}
	if len(head.AgentID) > 0 {
		rec.Agent = names.of(head.AgentID).text
	}
	return rec
}

// Data decodes the data of an event, and reports whether it could. Members that do not fit are
// left as they were.
func Data(rec *journal.Record, into any) bool {
	data := Raw(rec)
	return data != nil && json.Unmarshal(data, into) == nil
}

// Member returns a member of an event's data, as part of the event's JSON; nil if there is none.
func Member(rec *journal.Record, name string) json.RawMessage {
	var value json.RawMessage
	for m, err := range translate.Members(Raw(rec)) {
		if err == nil && string(m.Name) == name {
			value = m.Value
		}
	}
	return value
}

// Text returns a member of an event's data that is a string, else "".
func Text(rec *journal.Record, name string) string { return jsonobj.Text(Member(rec, name)) }

// Raw returns the data of an event, as part of its JSON.
func Raw(rec *journal.Record) json.RawMessage {
	head, err := translate.ScanEvent(rec.JSON)
	if err != nil {
		return nil
	}
	return head.Data
}
