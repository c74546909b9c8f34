package rpcconn

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
)

const eventMethod = "session.event"

var (
	// eventPrefix and eventSuffix enclose every session.event that the CLI sends. If both are present, the members
	// before params are known and the last member of the message is an object, so the message has no id.
	eventPrefix = []byte(`{"jsonrpc":"2.0","method":"session.event","params":{`)
	eventSuffix = []byte(`}}`)
)

// isCanonicalEvent recognises the CLI's form of an event without parsing. parseMessage handles all other forms.
func isCanonicalEvent(body []byte) bool {
	return bytes.HasPrefix(body, eventPrefix) && bytes.HasSuffix(body, eventSuffix)
}

// maxDepth is the nesting that is always permitted; encoding/json has the same limit.
const maxDepth = 10_000

// message is a parsed JSON-RPC message. Members are parts of the body; nil if absent. The last of a repeated member
// counts.
type message struct {
	id, method, params, result, err []byte
}

// parseMessage parses a body, and reports whether it is one object.
func parseMessage(b []byte) (m message, ok bool) {
	err := translate.ScanMembers(b, func(name, value []byte) {
		switch string(name) {
		case "id":
			m.id = value
		case "method":
			m.method = value
		case "params":
			m.params = value
		case "result":
			m.result = value
		case "error":
			m.err = value
		}
	})
	return m, err == nil
}

// unquote returns the text of a JSON string.
func unquote(quoted []byte) (string, bool) {
	if len(quoted) < 2 || quoted[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1]), true
	}
	var s string
	err := json.Unmarshal(quoted, &s)
	return s, err == nil
}

func isNull(value []byte) bool { return string(value) == "null" }

// replyID parses an id in the form of this side's calls.
func replyID(id []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(id), 10, 64)
	return n, err == nil
}

// headerRoom is the space before a body for the header, whose length is known after the body is complete.
const headerRoom = len("Content-Length: ") + 20 + len("\r\n\r\n")

// newBody starts a frame of about size bytes.
func newBody(size int) []byte {
	b := make([]byte, headerRoom, headerRoom+size)
	return append(b, `{"jsonrpc":"2.0",`...)
}

// seal writes the header directly before the body.
func seal(b []byte) []byte {
	var scratch [headerRoom]byte
	header := append(scratch[:0], "Content-Length: "...)
	header = strconv.AppendInt(header, int64(len(b)-headerRoom), 10)
	header = append(header, "\r\n\r\n"...)
	start := headerRoom - len(header)
	copy(b[start:], header)
	return b[start:]
}

// requestFrame builds a call, or a notification if id is 0, with the exact bytes of params.
func requestFrame(id uint64, method string, params []byte) []byte {
	b := newBody(len(method) + len(params) + 80)
	if id != 0 {
		b = append(b, `"id":`...)
		b = strconv.AppendUint(b, id, 10)
		b = append(b, ',')
	}
	b = append(b, `"method":`...)
	b = appendString(b, method)
	if params != nil {
		b = append(b, `,"params":`...)
		b = append(b, params...)
	}
	return seal(append(b, '}'))
}

// resultFrame builds a reply with the exact bytes of the id and the result.
func resultFrame(id string, result []byte) []byte {
	if result == nil {
		result = []byte("null")
	}
	b := newBody(len(id) + len(result) + 48)
	b = append(b, `"id":`...)
	b = append(b, id...)
	b = append(b, `,"result":`...)
	b = append(b, result...)
	return seal(append(b, '}'))
}

// errorFrame builds an error reply.
func errorFrame(id string, e *Error) []byte {
	b := newBody(len(id) + len(e.Message) + len(e.Data) + 96)
	b = append(b, `"id":`...)
	b = append(b, id...)
	b = append(b, `,"error":{"code":`...)
	b = strconv.AppendInt(b, e.Code, 10)
	b = append(b, `,"message":`...)
	b = appendString(b, e.Message)
	if translate.Check(e.Data, maxDepth) == nil {
		b = append(b, `,"data":`...)
		b = append(b, e.Data...)
	}
	return seal(append(b, "}}"...))
}

// appendString quotes s for JSON. Names that need no escaping take a fast path.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			quoted, _ := json.Marshal(s) // a string can always be encoded
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
