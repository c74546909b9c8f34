// Package frame defines the elements of a stream: a message, or bytes that were encoded once and that several streams
// send. The bridge creates frames and the server sends them. The buffer pools are safe for concurrent use.
package frame

import "google.golang.org/protobuf/proto"

// Frame is one message of a stream: either Message or Wire is set.
type Frame struct {
	// Message is encoded when it is sent.
	Message proto.Message
	// Wire is an encoded copilot.bridge.v1.SubscribeResponse, in pieces. The pieces are shared and must not be
	// modified.
	Wire [][]byte
	// Own, if set, holds the last piece, which belongs to this frame only: its memory may be reused after it was
	// sent.
	Own *Buffer
}

// Sink sends the frames of a stream, in order, for one goroutine. It must not retain a frame after it returns. An
// error ends the stream.
type Sink func(Frame) error
