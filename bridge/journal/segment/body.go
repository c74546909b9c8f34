package segment

import "encoding/binary"

// AppendText appends a text: its length and its bytes.
func AppendText(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// Body cuts numbers and texts from the begin of an entry's body. OK becomes false, and stays it, when the body is too short.
type Body struct {
	Rest []byte
	OK   bool
}

// NewBody returns a body of which nothing is cut yet.
func NewBody(data []byte) Body { return Body{data, true} }

// Number cuts a number.
func (b *Body) Number() uint64 {
	n, size := binary.Uvarint(b.Rest)
	if size <= 0 {
		b.Rest, b.OK = nil, false
		return 0
	}
	b.Rest = b.Rest[size:]
	return n
}

// Text cuts a text, which is a part of the body.
func (b *Body) Text() []byte {
	n := b.Number()
	if n > uint64(len(b.Rest)) {
		b.Rest, b.OK = nil, false
		return nil
	}
	text := b.Rest[:n]
	b.Rest = b.Rest[n:]
	return text
}
