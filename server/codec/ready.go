package codec

// Ready is a message with its encoding: it is sent and received as bytes.
type Ready interface {
	// Wire returns the bytes of the message.
	Wire() []byte
	// TakeWire sets the bytes, and takes ownership of them.
	TakeWire(wire []byte)
}
