// Package status converts domain errors to gRPC statuses with the details of google.rpc. It alone determines which
// part of an error callers see. It has no state.
package status

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Domain is the ErrorInfo.domain of this server's reasons.
const Domain = "copilot-grpc"

// MetadataLimit is the metadata key with which a LIMIT_EXCEEDED fault names the limit; it becomes the subject of a
// QuotaFailure.
const MetadataLimit = "limit"

// metadataField is the metadata key of the offending field.
const metadataField = "field"

// library maps the codes of gRPC's own errors, such as that of a message over the size limit, to reasons.
var library = map[codes.Code]fault.Reason{
	codes.Canceled:          fault.Cancelled,
	codes.DeadlineExceeded:  fault.Timeout,
	codes.ResourceExhausted: fault.LimitExceeded,
	codes.Unimplemented:     fault.MethodUnknown,
	codes.Internal:          fault.Internal,
}

// Of returns the status of err. told is false if the status only reports an internal error: the text of err then
// belongs in the log. A nil err has the status OK.
func Of(err error) (st *status.Status, told bool) {
	if err == nil {
		return nil, true
	}
	if _, ok := errors.AsType[*fault.Error](err); !ok {
		if s, ok := status.FromError(err); ok {
			return ofLibrary(s), true
		}
	}
	f, told := fault.Public(err)
	code, _ := fault.Code(f.Reason)
	return withDetails(status.New(codes.Code(code), f.Message), details(f)...), told
}

// Reason returns the reason in a status from Of; "" if there is none.
func Reason(st *status.Status) string { return infoOf(st).GetReason() }

// Field returns the offending field in a status from Of; "" if there is none.
func Field(st *status.Status) string { return infoOf(st).GetMetadata()[metadataField] }

// infoOf returns the ErrorInfo of a status; nil if there is none.
func infoOf(st *status.Status) *errdetails.ErrorInfo {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}

// The trailers that repeat an error's reason and field, for callers that do not read its details.
const (
	TrailerReason = "copilot-reason"
	TrailerField  = "copilot-field"
)

// SetTrailer sends the reason and the field of a status, if it has them, as trailers of the call
// that ctx belongs to.
func SetTrailer(ctx context.Context, st *status.Status) {
	reason := Reason(st)
	if reason == "" {
		return
	}
	md := metadata.Pairs(TrailerReason, reason)
	if field := Field(st); field != "" {
		md.Set(TrailerField, field)
	}
	_ = grpc.SetTrailer(ctx, md) // it fails only after the end of the call
}

// ofLibrary adds missing details to a status. One that needs no reason, such as the health service's for an unknown
// service, stays unchanged.
func ofLibrary(s *status.Status) *status.Status {
	r, ok := library[s.Code()]
	if !ok || len(s.Proto().GetDetails()) > 0 {
		return s
	}
	return withDetails(s, &errdetails.ErrorInfo{Reason: fault.Name(r), Domain: Domain})
}

// details returns the details of f for programs.
func details(f *fault.Error) []protoadapt.MessageV1 {
	metadata := f.Metadata
	if f.Field != "" {
		metadata = f.With(metadataField, f.Field).Metadata
	}
	list := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: fault.Name(f.Reason), Domain: Domain,
		Metadata: metadata}}
	if f.Field != "" {
		list = append(list, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: f.Field, Description: f.Message},
		}})
	}
	if f.RetryAfter > 0 {
		list = append(list, &errdetails.RetryInfo{RetryDelay: durationpb.New(f.RetryAfter)})
	}
	if f.Reason == fault.LimitExceeded {
		list = append(list, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{
			{Subject: f.Metadata[MetadataLimit], Description: f.Message},
		}})
	}
	if f.RPC != nil {
		list = append(list,
			protoadapt.MessageV1Of(&bridgev1.JsonRpcError{Code: f.RPC.Code, Message: f.RPC.Message,
				DataJson: f.RPC.Data}))
	}
	return list
}

// withDetails returns s with details. That fails only for an OK status or invalid UTF-8, which Of never produces; the
// status without details still has the code.
func withDetails(s *status.Status, list ...protoadapt.MessageV1) *status.Status {
	if detailed, err := s.WithDetails(list...); err == nil {
		return detailed
	}
	return s
}
