package codec

// Ready is a message that stands for its bytes: it is not marshalled, and gets what came
// as it came.
type Ready interface {
	// Wire returns the bytes of the message.
	Wire() []byte
	// TakeWire takes the bytes over.
	TakeWire(wire []byte)
}
