// Package frame defines what a stream sends: a message, or bytes that were encoded
// once and are shared by every stream that sends them. It is the one type that the
// bridge, which makes frames, and the server, which sends them, have in common.
package frame

import "google.golang.org/protobuf/proto"

// Frame is one message of a stream: either Message or Wire is set.
type Frame struct {
	// Message is sent as it is.
	Message proto.Message
	// Wire is the encoded form of a copilot.bridge.v1.SubscribeResponse, in pieces.
	// The pieces are shared and must not be written to.
	Wire [][]byte
	// Own, if set, holds the last piece, which is of this frame alone: its memory may be given
	// back when it was sent.
	Own *Buffer
}

// Sink takes the frames of a stream, in order, from one goroutine. It may keep a
// frame only until it returns. An error ends the stream.
type Sink func(Frame) error
