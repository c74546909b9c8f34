package copilot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/transport"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// errorDomain marks the error details that copilot-grpc gives.
const errorDomain = "copilot-grpc"

// reasonPrefix begins the names of ErrorReason, and is left out on the wire.
const reasonPrefix = "ERROR_REASON_"

// Error is what a server, or the way to it, refused or failed to do.
type Error struct {
	// The status code.
	Code codes.Code
	// The cause, for programs; unspecified when the error is not the server's own (a
	// broken connection, a proxy) or is newer than this client (Metadata["reason"]
	// then names it).
	Reason ErrorReason
	// The cause, for people.
	Message string
	// The field of the request that is at fault, as a path; empty if none is.
	Field string
	// Further facts: session_id, callback_id, method, ….
	Metadata map[string]string
	// How long to wait before trying again; 0 if the server does not say.
	RetryAfter time.Duration

	cause error
	// The server refused the call's token, and the source has another one now.
	tokenReplaced bool
}

// Error says what went wrong: the code, the reason where there is one, and the message.
func (e *Error) Error() string {
	what := e.Code.String()
	if e.Reason != bridgev1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		what += " " + strings.TrimPrefix(e.Reason.String(), reasonPrefix)
	}
	if e.Field != "" {
		what += fmt.Sprintf(" (field %q)", e.Field)
	}
	if e.Code == codes.Unauthenticated {
		return fmt.Sprintf("copilot: %s: %s: set the bearer token with WithToken or WithTokenSource, or in %s",
			what, e.Message, TokenEnv)
	}
	return fmt.Sprintf("copilot: %s: %s", what, e.Message)
}

// Unwrap gives the error this one was made from, if any.
func (e *Error) Unwrap() error { return e.cause }

// Is makes calls that a context ended match the context's own errors.
func (e *Error) Is(target error) bool {
	return e.Code == codes.Canceled && target == context.Canceled ||
		e.Code == codes.DeadlineExceeded && target == context.DeadlineExceeded
}

// GRPCStatus gives the error as a status, so that package status understands it.
func (e *Error) GRPCStatus() *status.Status {
	var from interface{ GRPCStatus() *status.Status }
	if errors.As(e.cause, &from) {
		return from.GRPCStatus()
	}
	return status.New(e.Code, e.Message)
}

// FromError turns the error of a gRPC call into an [*Error], and leaves other errors as
// they are. It returns nil for nil.
func FromError(err error) error {
	if err == nil {
		return nil
	}
	if e := asError(err); e != nil {
		return e
	}
	return err
}

// IsReason reports whether err is, or wraps, an error of the server with that reason.
func IsReason(err error, reason ErrorReason) bool {
	e := asError(err)
	return e != nil && e.Reason == reason
}

// asError finds or makes the *Error in err; nil when err has nothing to do with gRPC.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var from interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &from) {
		return contextError(err)
	}
	st := from.GRPCStatus()
	e = &Error{Code: st.Code(), Message: st.Message(), cause: err}
	e.tokenReplaced = errors.As(err, new(transport.ReplacedTokenError))
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.Domain == errorDomain {
				e.setInfo(d.Reason, d.Metadata)
			}
		case *errdetails.BadRequest:
			if len(d.FieldViolations) > 0 {
				e.Field = d.FieldViolations[0].Field
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	return e
}

// contextError is the *Error of a context that ended before a call was made.
func contextError(err error) *Error {
	switch {
	case errors.Is(err, context.Canceled):
		return &Error{Code: codes.Canceled, Message: err.Error(), cause: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: codes.DeadlineExceeded, Message: err.Error(), cause: err}
	}
	return nil
}

func (e *Error) setInfo(reason string, metadata map[string]string) {
	e.Metadata = maps.Clone(metadata)
	if e.Field == "" {
		e.Field = metadata["field"]
	}
	if n, known := bridgev1.ErrorReason_value[reasonPrefix+reason]; known {
		e.Reason = bridgev1.ErrorReason(n)
		return
	}
	if e.Metadata == nil {
		e.Metadata = make(map[string]string, 1)
	}
	e.Metadata["reason"] = reason
}

// fromFailure is the *Error of a failure inside a stream.
func fromFailure(f *bridgev1.Failure) *Error {
	return &Error{
		Code:     codes.Code(f.GetCode()),
		Reason:   f.GetReason(),
		Message:  f.GetMessage(),
		Field:    f.GetField(),
		Metadata: f.GetMetadata(),
	}
}

// fromServer reports whether the server itself gave the error, and not the way to it.
func (e *Error) fromServer() bool {
	return e.Reason != bridgev1.ErrorReason_ERROR_REASON_UNSPECIFIED || e.Metadata["reason"] != ""
}

// ClosedError says that the server ended a participation.
type ClosedError struct {
	// The session.
	SessionID string
	// Why.
	Reason CloseReason
}

// Error says why.
func (e *ClosedError) Error() string {
	return fmt.Sprintf("copilot: session %q is over for this participant: %s", e.SessionID, e.Reason)
}

// GapError stands in a sequence of events where some can no longer be had. The
// sequence goes on after it.
type GapError struct {
	// Why they are missing.
	Reason GapReason
	// The missing events are those after After, up to and including Through.
	After, Through *Position
	// The gap as a message, with the session's current state.
	Proto *bridgev1.Gap
}

func newGapError(gap *bridgev1.Gap) *GapError {
	return &GapError{wordOf[GapReason](gap.GetReason()), gap.GetAfter(), gap.GetThrough(), gap}
}

// Error says which events are missing, and why.
func (e *GapError) Error() string {
	return fmt.Sprintf("copilot: events after %d/%d up to %d/%d are gone: %s",
		e.After.GetEpoch(), e.After.GetSeq(), e.Through.GetEpoch(), e.Through.GetSeq(), e.Reason)
}

// OutcomeError is a turn that did not end well.
type OutcomeError struct {
	// How it ended.
	Outcome *Outcome
}

// Error says how the turn ended and, where an error ended it, which.
func (e *OutcomeError) Error() string {
	if e.Outcome == nil {
		return "copilot: there is no outcome: the call that returned it has failed"
	}
	how := string(e.Outcome.Status())
	if te := e.Outcome.Error(); te != nil {
		return fmt.Sprintf("copilot: turn %s: %s: %s", how, te.GetErrorType(), te.GetMessage())
	}
	return "copilot: turn " + how
}
