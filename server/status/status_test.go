package status_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

func detail[M proto.Message](st *grpcstatus.Status) (m M, found bool) {
	for _, d := range st.Details() {
		if m, ok := d.(M); ok {
			return m, true
		}
	}
	return m, false
}

// Every public reason reaches the caller under its own name, with its own code.
func TestOfEveryReason(t *testing.T) {
	t.Parallel()
	for number, name := range bridgev1.ErrorReason_name {
		if number == 0 {
			continue
		}
		r, short := fault.Reason(number), strings.TrimPrefix(name, "ERROR_REASON_")
		st, told := status.Of(fmt.Errorf("call: %w", fault.New(r, "what happened")))
		code, _ := fault.Code(r)
		info, ok := detail[*errdetails.ErrorInfo](st)
		if !told || !ok || info.GetReason() != short || info.GetDomain() != "copilot-grpc" ||
			st.Code() != codes.Code(code) || st.Message() != "what happened" || status.Reason(st) != short {
			t.Errorf("%s: %v, told %t", r, st, told)
		}
	}
}

func TestOfDetails(t *testing.T) {
	t.Parallel()
	st, _ := status.Of(fault.New(fault.LimitExceeded, "too many sessions").
		WithField("session_id").With("limit", "sessions").WithRetry(3 * time.Second))
	if info, _ := detail[*errdetails.ErrorInfo](st); info.GetMetadata()["field"] != "session_id" ||
		info.GetMetadata()["limit"] != "sessions" {
		t.Errorf("ErrorInfo = %v", info)
	}
	if bad, ok := detail[*errdetails.BadRequest](st); !ok || bad.GetFieldViolations()[0].GetField() != "session_id" ||
		bad.GetFieldViolations()[0].GetDescription() != "too many sessions" {
		t.Errorf("BadRequest = %v", bad)
	}
	if retry, ok := detail[*errdetails.RetryInfo](st); !ok || retry.GetRetryDelay().AsDuration() != 3*time.Second {
		t.Errorf("RetryInfo = %v", retry)
	}
	if quota, ok := detail[*errdetails.QuotaFailure](st); !ok || quota.GetViolations()[0].GetSubject() != "sessions" {
		t.Errorf("QuotaFailure = %v", quota)
	}
	plain, _ := status.Of(fault.New(fault.SessionBusy, "busy"))
	if n := len(plain.Details()); n != 1 {
		t.Errorf("a fault without field, quota and retry has %d details", n)
	}
}

func TestOfOtherErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err    error
		code   codes.Code
		reason string
		told   bool
	}{
		"nil":       {nil, codes.OK, "", true},
		"unknown":   {errors.New("password hunter2"), codes.Internal, "INTERNAL", false},
		"cancelled": {context.Canceled, codes.Canceled, "CANCELLED", true},
		"deadline":  {fmt.Errorf("x: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "TIMEOUT", true},
		"library": {grpcstatus.Error(codes.ResourceExhausted, "message too large"), codes.ResourceExhausted,
			"LIMIT_EXCEEDED", true},
		"foreign": {grpcstatus.Error(codes.NotFound, "unknown service"), codes.NotFound, "", true},
		"status in a fault": {fault.Wrap(grpcstatus.Error(codes.NotFound, "x"), fault.SessionBusy, "y"),
			codes.FailedPrecondition, "SESSION_BUSY", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, told := status.Of(tc.err)
			if st.Code() != tc.code || status.Reason(st) != tc.reason || told != tc.told {
				t.Errorf("Of = %v %q, told %t", st, status.Reason(st), told)
			}
			if strings.Contains(st.Message(), "hunter2") {
				t.Errorf("message %q tells what only the log may know", st.Message())
			}
		})
	}
}
