package rpcconn

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sourcegraph/jsonrpc2"
)

// Codes this package answers the peer with. The first three are JSON-RPC's
// own.
const (
	// CodeMethodNotFound says that nobody serves the method.
	CodeMethodNotFound = jsonrpc2.CodeMethodNotFound
	// CodeParseError says that the message is not JSON.
	CodeParseError = jsonrpc2.CodeParseError
	// CodeInternalError is what a handler's plain error becomes.
	CodeInternalError = jsonrpc2.CodeInternalError
	// CodeInvalidRequest says that the message is not a usable request.
	CodeInvalidRequest = jsonrpc2.CodeInvalidRequest
	// CodeOverloaded says that the request was refused unseen because too
	// many are waiting; its data carries {"reason":"REQUEST_QUEUE_FULL"}.
	CodeOverloaded = -32050
)

// Errors a call or a connection can end with. ErrClosed matches every error
// that reports the end of the connection; exactly one of the causes after it
// matches too.
var (
	// ErrClosed matches every error caused by the end of the connection.
	ErrClosed = errors.New("connection closed")
	// ErrLocalClose is the cause when this side called Close.
	ErrLocalClose = errors.New("closed by this side")
	// ErrPeerClosed is the cause when the peer's stream ended between frames.
	ErrPeerClosed = errors.New("peer closed the stream")
	// ErrTruncated is the cause when the peer's stream ended inside a frame.
	ErrTruncated = errors.New("stream ended inside a frame")
	// ErrFrameTooLarge is the cause when the peer announced a frame over MaxFrame.
	ErrFrameTooLarge = errors.New("frame too large")
	// ErrBadFrame is the cause when the stream is not Content-Length frames.
	ErrBadFrame = errors.New("malformed frame header")
	// ErrReadFailed is the cause when reading failed in any other way.
	ErrReadFailed = errors.New("read failed")
	// ErrWriteFailed is the cause when writing failed.
	ErrWriteFailed = errors.New("write failed")
	// ErrPeerStalled is the cause when the peer sends requests but reads no answers.
	ErrPeerStalled = errors.New("peer does not read its answers")

	// ErrNotSent matches errors of calls of which no byte was given to the
	// peer, so that trying again cannot do the work twice.
	ErrNotSent = errors.New("request not sent")
	// ErrOutboundFull is the error of a message that does not fit in what may
	// be queued for a peer that reads too slowly.
	ErrOutboundFull = errors.New("outbound queue full")
	// ErrInvalidJSON is the error of params or a result that are not exactly
	// one JSON value, and so could break out of the message around them.
	ErrInvalidJSON = errors.New("not a single JSON value")
	// ErrTooDeep is the error of params or a result that would make a message nested more deeply
	// than Options.MaxDepth.
	ErrTooDeep = errors.New("nested too deeply for the peer")
	// ErrBadReply is the error of a call whose reply held neither a result
	// nor a readable error.
	ErrBadReply = errors.New("malformed reply")
)

// Error is the error object of a JSON-RPC reply. A call returns it, unwrapped,
// when the peer answered with one; a request handler returns it, wrapped or
// not, to choose what the peer is told.
type Error struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("rpc error %d: %s", e.Code, e.Message)
}

// CloseError is how a connection ended.
type CloseError struct {
	// Cause is one of the sentinel causes of this package.
	Cause error
	// Err has the details, if there are any.
	Err error
}

// Error implements error.
func (e *CloseError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%v: %v", ErrClosed, e.Cause)
	}
	return fmt.Sprintf("%v: %v: %v", ErrClosed, e.Cause, e.Err)
}

// Unwrap makes ErrClosed, the cause and the details all visible to errors.Is.
func (e *CloseError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrClosed, e.Cause}
	}
	return []error{ErrClosed, e.Cause, e.Err}
}

// CallError is why a call has no answer from the peer.
type CallError struct {
	// Method is the method called.
	Method string
	// Sent tells whether the peer may have seen the request.
	Sent bool
	// Err is the reason: a context's error, ErrOutboundFull, a *CloseError …
	Err error
}

// Error implements error.
func (e *CallError) Error() string {
	if e.Sent {
		return fmt.Sprintf("call %q: %v", e.Method, e.Err)
	}
	return fmt.Sprintf("call %q: %v: %v", e.Method, ErrNotSent, e.Err)
}

// Unwrap makes the reason visible to errors.Is, and ErrNotSent where it holds.
func (e *CallError) Unwrap() []error {
	if e.Sent {
		return []error{e.Err}
	}
	return []error{ErrNotSent, e.Err}
}

// replyError chooses what the peer is told about a handler's error. It looks
// through wrapping, which the library does not.
func replyError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternalError, Message: err.Error()}
}
