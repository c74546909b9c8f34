package translate

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// FrameKind tells what a JSON-RPC message is.
type FrameKind uint8

// The kinds of JSON-RPC message.
const (
	FrameRequest FrameKind = iota + 1
	FrameNotification
	FrameResponse
)

// Frame has the parts of a JSON-RPC message that the bridge needs before it parses the message. All slices are
// spans of the message, except names and strings with escapes; nil means that the member is missing. If a
// member occurs twice, the last one counts.
type Frame struct {
	Kind   FrameKind
	Method []byte // without quotes
	ID     []byte // JSON text
	Params []byte // JSON text
	Result []byte // JSON text
	Error  []byte // JSON text

	// Set when Method is "session.event" and Params has them.
	SessionID []byte // without quotes
	Event     EventHead
}

// EventHead is what can be known of a session event without parsing its
// payload. The strings come without quotes; a member that is missing or no
// string is nil.
type EventHead struct {
	Raw       []byte // the event, JSON text
	Type      []byte
	ID        []byte
	AgentID   []byte
	Data      []byte // JSON text
	Ephemeral bool
}

const eventMethod = "session.event"

// eventPrefix is how the CLI begins each event.
const eventPrefix = `{"jsonrpc":"2.0","method":"session.event","params":`

// ScanFrame finds the parts of a JSON-RPC message by counting brackets. The skipped parts may be malformed;
// their translation detects that. An error is always an *Error.
func ScanFrame(body []byte) (Frame, error) {
	var f Frame
	s := scanner{b: body}
	if bytes.HasPrefix(body, []byte(eventPrefix)) && s.common(&f) {
		return f, nil
	}
	f = Frame{}
	start := space(body, 0)
	end, ok := s.object(start, func(name []byte, i int) (int, bool) {
		switch string(name) {
		case "method":
			end, ok := s.skip(i)
			f.Method = s.text(i, end, ok)
			return end, ok
		case "params":
			f.SessionID, f.Event = nil, EventHead{}
			if string(f.Method) == eventMethod && s.at(i) == '{' {
				end, ok := s.params(i, &f)
				f.Params = s.span(i, end, ok)
				return end, ok
			}
			return s.keep(i, &f.Params)
		case "id":
			return s.keep(i, &f.ID)
		case "result":
			return s.keep(i, &f.Result)
		case "error":
			return s.keep(i, &f.Error)
		}
		return s.skip(i)
	})
	if !ok || space(body, end) != len(body) {
		return Frame{}, &Error{Kind: KindSyntax, Message: "JSON-RPC message", Offset: end}
	}
	// The method may follow its params.
	if string(f.Method) == eventMethod && f.Event.Raw == nil && len(f.Params) > 0 && f.Params[0] == '{' {
		inner := scanner{b: f.Params}
		if end, ok := inner.params(0, &f); !ok {
			return Frame{}, &Error{Kind: KindSyntax, Message: "JSON-RPC message", Path: "params", Offset: end}
		}
	}
	switch {
	case f.Method != nil && f.ID != nil:
		f.Kind = FrameRequest
	case f.Method != nil:
		f.Kind = FrameNotification
	case f.Result != nil || f.Error != nil:
		f.Kind = FrameResponse
	default:
		return Frame{}, &Error{Kind: KindMisfit, Message: "JSON-RPC message", Offset: -1}
	}
	return f, nil
}

// ScanMembers calls visit for the members of a JSON object: with the name, without quotes and escapes, and the value,
// which may be malformed. An error is always an *Error.
func ScanMembers(obj []byte, visit func(name, value []byte)) error {
	s := scanner{b: obj}
	end, ok := s.object(space(obj, 0), func(name []byte, i int) (int, bool) {
		end, ok := s.skip(i)
		if ok {
			visit(name, s.b[i:end:end])
		}
		return end, ok
	})
	if !ok || space(obj, end) != len(obj) {
		return &Error{Kind: KindSyntax, Message: objectText, Offset: end}
	}
	return nil
}

// ScanEvent finds the head of one session event.
func ScanEvent(event []byte) (EventHead, error) {
	var h EventHead
	s := scanner{b: event}
	end, ok := s.event(space(event, 0), &h)
	if !ok || space(event, end) != len(event) {
		return EventHead{}, &Error{Kind: KindSyntax, Message: "session event", Offset: end}
	}
	return h, nil
}

// scanner finds its way through JSON without checking more than it must. Its
// methods return the index after what they read, and false, with the index of
// the trouble, when the text is not even balanced.
type scanner struct{ b []byte }

func (s *scanner) at(i int) byte {
	if i < len(s.b) {
		return s.b[i]
	}
	return 0
}

// common reads an event in the form that the CLI gives every one, of which no more than the
// params need be looked for. It reports whether that is all there is.
func (s *scanner) common(f *Frame) bool {
	const begin = len(eventPrefix)
	end, ok := s.params(begin, f)
	if !ok || end != len(s.b)-1 || s.b[end] != '}' {
		return false
	}
	f.Kind, f.Method, f.Params = FrameNotification, s.b[begin-len(eventMethod)-len(`","params":`):begin-len(`","params":`)], s.b[begin:end:end]
	return true
}

// params reads the params of a session.event.
func (s *scanner) params(i int, f *Frame) (int, bool) {
	return s.object(i, func(name []byte, i int) (int, bool) {
		switch string(name) {
		case "sessionId":
			end, ok := s.skip(i)
			f.SessionID = s.text(i, end, ok)
			return end, ok
		case "event":
			f.Event = EventHead{}
			if s.at(i) == '{' {
				return s.event(i, &f.Event)
			}
		}
		return s.skip(i)
	})
}

func (s *scanner) event(i int, h *EventHead) (int, bool) {
	start := i
	end, ok := s.object(i, func(name []byte, i int) (int, bool) {
		end, ok := s.skip(i)
		switch string(name) {
		case "type":
			h.Type = s.text(i, end, ok)
		case "id":
			h.ID = s.text(i, end, ok)
		case "agentId":
			h.AgentID = s.text(i, end, ok)
		case "data":
			h.Data = s.span(i, end, ok)
		case "ephemeral":
			h.Ephemeral = ok && s.b[i] == 't'
		}
		return end, ok
	})
	h.Raw = s.span(start, end, ok)
	return end, ok
}

// object reads the object at i; visit reads the value of each member.
func (s *scanner) object(i int, visit func(name []byte, i int) (int, bool)) (int, bool) {
	if s.at(i) != '{' {
		return i, false
	}
	i = space(s.b, i+1)
	if s.at(i) == '}' {
		return i + 1, true
	}
	for s.at(i) == '"' {
		end, ok := s.string(i)
		if !ok {
			return end, false
		}
		name := s.b[i+1 : end-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name = s.text(i, end, true)
		}
		if i = space(s.b, end); s.at(i) != ':' {
			return i, false
		}
		if i, ok = visit(name, space(s.b, i+1)); !ok {
			return i, false
		}
		i = space(s.b, i)
		switch s.at(i) {
		case '}':
			return i + 1, true
		case ',':
			i = space(s.b, i+1)
		default:
			return i, false
		}
	}
	return i, false
}

func (s *scanner) span(start, end int, ok bool) []byte {
	if !ok {
		return nil
	}
	return s.b[start:end:end]
}

func (s *scanner) keep(i int, to *[]byte) (int, bool) {
	end, ok := s.skip(i)
	*to = s.span(i, end, ok)
	return end, ok
}

// text returns the string between start and end without quotes and escapes, nil
// when it is no proper string.
func (s *scanner) text(start, end int, ok bool) []byte {
	if !ok || s.b[start] != '"' {
		return nil
	}
	content := s.b[start+1 : end-1 : end-1]
	if bytes.IndexByte(content, '\\') < 0 {
		return content
	}
	// Escapes have to be checked before they are taken out.
	if got, _, k := stringEnd(s.b, start); k != 0 || got != end {
		return nil
	}
	out, lone := appendUnescaped(nil, content)
	if lone {
		return nil
	}
	return out
}

// maxSkipped is how deeply a skipped value may be nested, as for encoding/json.
const maxSkipped = 10_000

// structural marks the bytes that matter between strings.
var structural = [256]uint8{'"': 1, '{': 2, '[': 2, '}': 3, ']': 3}

// skip passes over the value at i.
func (s *scanner) skip(i int) (int, bool) {
	b := s.b
	switch s.at(i) {
	case '"':
		return s.string(i)
	case '{', '[':
	default:
		start := i
		for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] > ' ' {
			i++
		}
		return i, i > start
	}
	for depth := 0; i < len(b); {
		switch structural[b[i]] {
		case 0:
			i++
		case 1:
			var ok bool
			if i, ok = s.string(i); !ok {
				return i, false
			}
		case 2:
			if depth++; depth > maxSkipped {
				return i, false
			}
			i++
		case 3:
			depth--
			i++
			if depth == 0 {
				return i, true
			}
		}
	}
	return i, false
}

// string passes over the string at i: the first bytes word by word, since most
// strings are short, the rest by the vector instructions behind IndexByte.
func (s *scanner) string(i int) (int, bool) {
	b := s.b
	start := i + 1
	i = start
	for n := 0; n < 3 && i+8 <= len(b); n++ {
		x := binary.LittleEndian.Uint64(b[i:])
		quote := x ^ ones*'"'
		slash := x ^ ones*'\\'
		m := ((quote - ones) | (slash - ones)) &^ x & highs
		if m != 0 {
			i += bits.TrailingZeros64(m) >> 3
			if b[i] == '"' {
				return i + 1, true
			}
			break
		}
		i += 8
	}
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b), false
		}
		i += n
		back := i
		for back > start && b[back-1] == '\\' {
			back--
		}
		if (i-back)&1 == 0 {
			return i + 1, true
		}
		i++
	}
}
