package main

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	v1 "github.com/copilot-grpc/copilot-grpc/e2e/conformance/conformancev1"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func outcomeOf(out *copilot.Outcome) *v1.Outcome {
	if out == nil {
		return nil
	}
	o := &v1.Outcome{
		Status: strings.ToUpper(string(out.Status())), Text: out.Text(), ErrorType: out.Error().GetErrorType(),
	}
	if err := out.Err(); err != nil {
		o.Error = err.Error()
	}
	return o
}

// eventOf is an element of a sequence; nil for an error that ends it.
func eventOf(ev *bridgev1.Event, err error) *v1.Event {
	var gap *copilot.GapError
	if errors.As(err, &gap) {
		reason := strings.ToUpper(string(gap.Reason))
		return &v1.Event{Gap: reason, Epoch: gap.Through.GetEpoch(), Seq: gap.Through.GetSeq()}
	}
	if err != nil {
		return nil
	}
	return &v1.Event{
		Type: ev.GetEvent().GetEventType(), Epoch: ev.GetPosition().GetEpoch(), Seq: ev.GetPosition().GetSeq(),
	}
}

// errorOf tells what kind of error it is.
func errorOf(ctx context.Context, err error) *v1.Error {
	e := &v1.Error{Message: err.Error(), Kind: v1.Error_USAGE}
	var status *copilot.Error
	var closed *copilot.ClosedError
	var incompatible *copilot.IncompatibleError
	switch {
	case errors.Is(err, errUnsupported):
		e.Kind = v1.Error_UNSUPPORTED
	case errors.As(err, &incompatible):
		e.Kind = v1.Error_INCOMPATIBLE
	case errors.Is(err, copilot.ErrClosed):
		e.Kind = v1.Error_CLOSED
	case errors.As(err, &closed):
		e.Kind, e.Reason = v1.Error_SESSION_CLOSED, strings.ToUpper(string(closed.Reason))
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		e.Kind = v1.Error_CANCELLED
	case errors.As(err, &status):
		e.Kind, e.Field = v1.Error_STATUS, status.Field
		e.Code = codeName(status.Code)
		if status.Reason != 0 {
			e.Reason = strings.TrimPrefix(status.Reason.String(), "ERROR_REASON_")
		} else {
			e.Reason = status.Metadata["reason"]
		}
	}
	return e
}

// codeName is a code as in NOT_FOUND.
func codeName(code codes.Code) string {
	var name strings.Builder
	for i, letter := range code.String() {
		if i > 0 && letter >= 'A' && letter <= 'Z' {
			name.WriteByte('_')
		}
		name.WriteRune(letter)
	}
	return strings.ToUpper(strings.ReplaceAll(name.String(), "Canceled", "Cancelled"))
}
