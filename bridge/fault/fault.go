// Package fault defines the bridge's error: a reason of the contract for programs and a message for people. It has
// the table of status codes, and determines which part of an error callers see (Public). It has no state.
//
// Packages below the server return this type, or plain errors that a caller classifies. No code compares message
// texts, except those of the CLI.
package fault

import (
	"errors"
	"fmt"
	"maps"
	"time"
)

// Error is a failure with a Reason. Message is complete on its own: it contains the text of the cause if that is
// useful, because the cause is not sent to clients.
type Error struct {
	// Reason is the stable class of the failure.
	Reason Reason
	// Message describes in one line what happened and, if there is one, the remedy.
	Message string
	// Field is the path of the offending request field, empty if there is none.
	Field string
	// Metadata holds details for programs; never secrets.
	Metadata map[string]string
	// RetryAfter is when a retry may succeed; zero if unknown.
	RetryAfter time.Duration
	// RPC is the CLI's own error, for callers that requested it; nil for all others.
	RPC *RPC

	cause error
}

// RPC is a JSON-RPC error.
type RPC struct {
	Code    int64
	Message string
	// Data is JSON text; empty if there is none.
	Data string
}

// New returns an Error without a cause.
func New(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns an Error caused by err, whose text is appended to the message. With a nil err it is like New.
func Wrap(err error, reason Reason, format string, args ...any) *Error {
	message := fmt.Sprintf(format, args...)
	if err != nil {
		message += ": " + err.Error()
	}
	return &Error{Reason: reason, Message: message, cause: err}
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, nil if there is none.
func (e *Error) Unwrap() error { return e.cause }

// WithField returns a copy with the path of the offending request field.
func (e *Error) WithField(path string) *Error {
	c := e.clone()
	c.Field = path
	return c
}

// With returns a copy with one more metadata entry.
func (e *Error) With(key, value string) *Error {
	c := e.clone()
	if c.Metadata == nil {
		c.Metadata = make(map[string]string, 1)
	}
	c.Metadata[key] = value
	return c
}

// Remedy is the metadata key of what mends the failure, such as a command.
const Remedy = "remedy"

// WithRemedy returns a copy that says what mends the failure, at the end of the message and in the metadata.
func (e *Error) WithRemedy(format string, args ...any) *Error {
	remedy := fmt.Sprintf(format, args...)
	c := e.With(Remedy, remedy)
	c.Message += "; " + remedy
	return c
}

// WithRPC returns a copy that carries a JSON-RPC error.
func (e *Error) WithRPC(rpc RPC) *Error {
	c := e.clone()
	c.RPC = &rpc
	return c
}

// WithRetry returns a copy with the time to retry.
func (e *Error) WithRetry(after time.Duration) *Error {
	c := e.clone()
	c.RetryAfter = after
	return c
}

// clone copies e so deeply that With never changes an Error kept in a variable.
func (e *Error) clone() *Error {
	c := *e
	c.Metadata = maps.Clone(e.Metadata)
	return &c
}

// ReasonOf returns the reason of the outermost Error in err's chain; None if there is none.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return None
}
