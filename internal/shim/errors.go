package shim

import (
	"encoding/json"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// JSON-RPC codes of the CLI.
const (
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeShuttingDown   = -32000
	codeAuthRequired   = -32001
	codeAuthFailed     = -32002
	codeAuthNotSet     = -32003
)

// rpcError converts an error of a method to the JSON-RPC error for the program.
func rpcError(err error, method string) error {
	if rpc, ok := errors.AsType[*rpcconn.Error](err); ok {
		return rpc
	}
	st, ok := status.FromError(err)
	if !ok {
		return failure(method, err.Error())
	}
	for _, d := range st.Details() {
		if e, ok := d.(*bridgev1.JsonRpcError); ok {
			out := &rpcconn.Error{Code: e.GetCode(), Message: e.GetMessage()}
			if e.GetDataJson() != "" {
				out.Data = json.RawMessage(e.GetDataJson())
			}
			return out
		}
	}
	if st.Code() == codes.Unimplemented && reasonOf(st) != "" {
		return unhandled(method)
	}
	return failure(method, st.Message())
}

// commandError is the error of a command, with the details that a call has in its status.
type commandError struct{ status *status.Status }

// Error returns the bridge's text alone.
func (e *commandError) Error() string { return e.status.Message() }

// GRPCStatus makes package status treat the error like that of a call.
func (e *commandError) GRPCStatus() *status.Status { return e.status }

// failedCommand returns the error of a failed command.
func failedCommand(f *bridgev1.AttachFailed) error {
	st := status.New(codes.Code(f.GetFailure().GetCode()), f.GetFailure().GetMessage())
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{
		Reason: fault.Name(f.GetFailure().GetReason()), Metadata: f.GetFailure().GetMetadata(),
	}}
	if f.GetRpcError() != nil {
		details = append(details, protoadapt.MessageV1Of(f.GetRpcError()))
	}
	if detailed, err := st.WithDetails(details...); err == nil { // it fails for OK only
		st = detailed
	}
	return &commandError{st}
}

// failure is an error in the CLI's form.
func failure(method, text string) error {
	return &rpcconn.Error{Code: codeInternal, Message: "Request " + method + " failed with message: " + text}
}

// shuttingDown is the CLI's error for a request after runtime.shutdown.
func shuttingDown() error {
	return &rpcconn.Error{Code: codeShuttingDown, Message: "SERVER_SHUTTING_DOWN"}
}

// noSession is the CLI's error for a call that must name a session and does not.
func noSession(method string) error { return failure(method, "Missing sessionId parameter") }

// unhandled is the CLI's error for a method that it does not have.
func unhandled(method string) error {
	return &rpcconn.Error{Code: codeMethodNotFound, Message: "Unhandled method " + method}
}

// reasonOf is the reason in a status, "" if it has none.
func reasonOf(st *status.Status) string {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// errDraining is the end of a stream whose bridge is about to end: it goes on with the next.
var errDraining = status.Error(codes.Unavailable, "the bridge is shutting down")

// passes reports whether an error comes from the way to the bridge, or from a bridge that
// is about to end, so that trying again may help.
func passes(err error) bool {
	st, ok := status.FromError(err)
	if !ok || st.Code() == codes.OK {
		return false
	}
	switch reasonOf(st) {
	case "":
		switch st.Code() {
		case codes.Unavailable, codes.Internal, codes.Aborted:
			return true
		}
		return false
	case "DRAINING":
		return true
	}
	return false
}
