package rpcconn

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sourcegraph/jsonrpc2"
)

// Codes of this package's error replies. The first three are JSON-RPC's own.
const (
	// CodeMethodNotFound: there is no handler for the method.
	CodeMethodNotFound = jsonrpc2.CodeMethodNotFound
	// CodeParseError: the message is not JSON.
	CodeParseError = jsonrpc2.CodeParseError
	// CodeInternalError is the code for a handler's error without a code.
	CodeInternalError = jsonrpc2.CodeInternalError
	// CodeInvalidRequest: the message is not a valid request.
	CodeInvalidRequest = jsonrpc2.CodeInvalidRequest
	// CodeOverloaded: the request was refused because too many are waiting; its data is
	// {"reason":"REQUEST_QUEUE_FULL"}.
	CodeOverloaded = -32050
)

// Errors of calls and connections. ErrClosed matches every error caused by the end of a connection; exactly one of
// the causes that follow it matches too.
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
	// ErrPeerStalled is the cause when the peer sends requests but reads no replies.
	ErrPeerStalled = errors.New("peer does not read its replies")

	// ErrNotSent matches errors of calls that were not written at all, so that a retry is safe.
	ErrNotSent = errors.New("request not sent")
	// ErrOutboundFull is the error of a message that exceeds the limit of bytes queued for a slow peer.
	ErrOutboundFull = errors.New("outbound queue full")
	// ErrTooManyCalls is the error of a call when MaxWaiting others wait for a slot.
	ErrTooManyCalls = errors.New("too many calls wait for the peer")
	// ErrInvalidJSON is the error of params or a result that are not exactly one JSON value, and so could change the
	// message around them.
	ErrInvalidJSON = errors.New("not a single JSON value")
	// ErrTooDeep is the error of params or a result that would make a message nested more deeply
	// than Options.MaxDepth.
	ErrTooDeep = errors.New("nested too deeply for the peer")
	// ErrBadReply is the error of a call whose reply had neither a result nor a valid error.
	ErrBadReply = errors.New("malformed reply")
)

// Error is the error object of a JSON-RPC reply. A call returns it, unwrapped, if the peer replied with one. A
// request handler returns it, wrapped or not, to determine the error reply.
type Error struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string {
	return fmt.Sprintf("rpc error %d: %s", e.Code, e.Message)
}

// CloseError is why a connection ended.
type CloseError struct {
	// Cause is one of the causes of this package.
	Cause error
	// Err has the details, if any.
	Err error
}

func (e *CloseError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%v: %v", ErrClosed, e.Cause)
	}
	return fmt.Sprintf("%v: %v: %v", ErrClosed, e.Cause, e.Err)
}

// Unwrap returns ErrClosed, the cause and the details, so that errors.Is matches each.
func (e *CloseError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrClosed, e.Cause}
	}
	return []error{ErrClosed, e.Cause, e.Err}
}

// CallError is the error of a call without a reply.
type CallError struct {
	// Method is the method called.
	Method string
	// Sent reports whether the peer may have received the request.
	Sent bool
	// Err is the reason: a context's error, ErrOutboundFull, a *CloseError …
	Err error
}

func (e *CallError) Error() string {
	if e.Sent {
		return fmt.Sprintf("call %q: %v", e.Method, e.Err)
	}
	return fmt.Sprintf("call %q: %v: %v", e.Method, ErrNotSent, e.Err)
}

// Unwrap returns the reason, and ErrNotSent if nothing was sent.
func (e *CallError) Unwrap() []error {
	if e.Sent {
		return []error{e.Err}
	}
	return []error{ErrNotSent, e.Err}
}

// replyError converts a handler's error to an error reply. It unwraps errors, unlike the library.
func replyError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternalError, Message: err.Error()}
}
