// Package fault is the error of the bridge: a reason of the contract for programs, and a message
// for people. It has the one table of status codes, and decides what callers are told of an error
// (Public). It holds no state.
//
// Packages below the server return this type, or plain errors that a caller classifies. No code
// compares message texts, except for those of the CLI.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Error is a failure with a Reason. Message is complete by itself: it already
// contains the text of the cause when that helps the reader, because the cause
// may stay behind at the process boundary.
type Error struct {
	// Reason is the stable class of the failure.
	Reason Reason
	// Message says in one line what happened and, where there is one, the remedy.
	Message string
	// Field is the path of the offending request field, empty if there is none.
	Field string
	// Metadata holds details for programs; never secrets.
	Metadata map[string]string
	// RetryAfter is when a repetition may succeed; zero says nothing about it.
	RetryAfter time.Duration
	// RPC is the CLI's own error, for callers who asked for it; nil for all others.
	RPC *RPC

	cause error
}

// RPC is a JSON-RPC error.
type RPC struct {
	Code    int64
	Message string
	// Data is JSON text; empty when there was none.
	Data string
}

// New returns an Error without a cause.
func New(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns an Error caused by err, whose text is appended to the message.
// A nil err is allowed and gives the same as New.
func Wrap(err error, reason Reason, format string, args ...any) *Error {
	message := fmt.Sprintf(format, args...)
	if err != nil {
		message += ": " + err.Error()
	}
	return &Error{Reason: reason, Message: message, cause: err}
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, nil if there is none.
func (e *Error) Unwrap() error { return e.cause }

// WithField returns a copy that blames the request field at path.
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

// WithRPC returns a copy that carries a JSON-RPC error.
func (e *Error) WithRPC(rpc RPC) *Error {
	c := e.clone()
	c.RPC = &rpc
	return c
}

// WithRetry returns a copy that says when to try again.
func (e *Error) WithRetry(after time.Duration) *Error {
	c := e.clone()
	c.RetryAfter = after
	return c
}

// clone copies e deeply enough that an Error kept in a variable is never
// changed by a later With.
func (e *Error) clone() *Error {
	c := *e
	if e.Metadata != nil {
		c.Metadata = make(map[string]string, len(e.Metadata)+1)
		for k, v := range e.Metadata {
			c.Metadata[k] = v
		}
	}
	return &c
}

// ReasonOf returns the reason of the outermost Error in err's chain, None
// when there is none.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return None
}
