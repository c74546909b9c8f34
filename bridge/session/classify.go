package session

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
)

// JSON-RPC error codes of the CLI. It uses codeInternal for nearly all errors, which differ only in their texts.
const (
	codeMethodNotFound = -32601
	codeInternal       = -32603
	codeShuttingDown   = -32000
)

// texts maps parts of the CLI's error texts to reasons. The first row whose text occurs applies.
var texts = []struct {
	contains string
	reason   fault.Reason
}{
	{"Session not found", fault.SessionNotFound},
	{"External tool name clash", fault.ToolNameConflict},
	{"Unhandled method", fault.MethodUnknown},
	{"too many concurrent JSON-RPC requests", fault.LimitExceeded},
	{"retained request byte budget", fault.LimitExceeded},
	{"No GitHub OAuth token", fault.NotSignedIn},
	{"Not authenticated", fault.NotSignedIn},
	{"already in use by another", fault.SessionInUse},
	{"unknown variant", fault.InvalidField},
	{"unknown field", fault.InvalidField},
	{"missing field", fault.InvalidField},
	{"invalid type", fault.InvalidField},
	{"Expected string parameter", fault.InvalidField},
	{"invalid sessionId", fault.InvalidField},
	{"invalid tool name", fault.ToolNameInvalid},
}

// signIn tells a caller how to resolve NOT_SIGNED_IN.
const signIn = "the Copilot CLI is not signed in to GitHub: give the session a github_token or a model provider, or " +
	"sign in with `copilot login` as the server's user, for sessions of the host's owner"

// turnReason returns the reason for the text of an error event that ends a turn, and the text for callers. If no
// reason applies, it returns fault.None and the unchanged text.
func turnReason(message string) (fault.Reason, string) {
	for _, row := range texts {
		if row.reason == fault.NotSignedIn && strings.Contains(message, row.contains) {
			return row.reason, signIn + "; the CLI says: " + message
		}
	}
	return fault.None, message
}

// unknownField finds the name of a request member that the CLI version does not support.
var unknownField = regexp.MustCompile("unknown field `([^`]+)`")

// switchedOff matches the CLI's error for a method that exists and is disabled.
var switchedOff = regexp.MustCompile("not (enabled|available)")

// refusers are the methods whose unclassified errors mean that the CLI rejected the request.
var refusers = map[string]bool{
	"session.create": true, "session.resume": true, "session.setForeground": true,
	"session.model.switchTo": true, "session.tools.set": true,
}

// Classify returns the typed error for a failed JSON-RPC call of method. The metadata has the CLI's code and text
// as rpc_code and rpc_message.
func Classify(err error, method string) error {
	if err == nil {
		return nil
	}
	if fault.ReasonOf(err) != fault.None {
		return err
	}
	if rpc, ok := errors.AsType[*rpcconn.Error](err); ok {
		return classifyReply(rpc, method)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.Timeout, "the CLI did not answer in time")
	case errors.Is(err, context.Canceled):
		return fault.Wrap(err, fault.Cancelled, "the caller cancelled the call")
	case errors.Is(err, rpcconn.ErrOutboundFull), errors.Is(err, rpcconn.ErrTooManyCalls):
		return fault.Wrap(err, fault.LimitExceeded, "the CLI does not read its input")
	case errors.Is(err, rpcconn.ErrTooDeep):
		return fault.Wrap(err, fault.InvalidField, "%s: the CLI accepts JSON of at most %d levels", method, rpcconn.CLIMaxDepth)
	case errors.Is(err, rpcconn.ErrClosed):
		return fault.Wrap(err, fault.RuntimeLost, "the runtime ended").With("method", method)
	}
	return fault.Wrap(err, fault.Internal, "calling the CLI").With("method", method)
}

func classifyReply(rpc *rpcconn.Error, method string) error {
	reason := fault.CLIError
	switch {
	case rpc.Code == codeMethodNotFound && switchedOff.MatchString(rpc.Message):
		reason = fault.FeatureDisabled
	case rpc.Code == codeMethodNotFound:
		reason = fault.MethodUnknown
	case rpc.Code == codeShuttingDown:
		reason = fault.RuntimeLost
	default:
		if refusers[method] {
			reason = fault.SessionRefused
		}
		for _, row := range texts {
			if strings.Contains(rpc.Message, row.contains) {
				reason = row.reason
				break
			}
		}
	}
	f := fault.Wrap(rpc, reason, "%s", rpc.Message)
	f.Message = rpc.Message
	if reason == fault.NotSignedIn {
		f.Message = signIn + "; the CLI says: " + rpc.Message
	}
	if reason == fault.SessionNotFound {
		f = f.WithField("session_id")
	}
	if field := unknownField.FindStringSubmatch(rpc.Message); field != nil && reason == fault.InvalidField {
		f = f.WithField(field[1])
		f.Message = fmt.Sprintf("the running CLI version has no field %q in %s: omit it, or run a version that has it (%s)",
			field[1], method, rpc.Message)
	}
	return f.With("rpc_code", strconv.FormatInt(rpc.Code, 10)).With("rpc_message", rpc.Message).With("method", method)
}

// Exactly adds the CLI's JSON-RPC error to an error of method, for callers who want exactly the CLI's errors. If
// the error is the bridge's own, Exactly adds the JSON-RPC error that the CLI would have returned. id is the
// session's id.
func Exactly(err error, method, id string) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		f = fault.Wrap(err, fault.Internal, "calling the CLI")
	}
	if rpc, ok := errors.AsType[*rpcconn.Error](err); ok {
		return f.WithRPC(fault.RPC{Code: rpc.Code, Message: rpc.Message, Data: string(rpc.Data)})
	}
	rpc := fault.RPC{Code: codeInternal, Message: "Request " + method + " failed with message: " + f.Message}
	switch {
	case id == "" && strings.HasSuffix(f.Field, "session_id"):
		rpc.Message = "Request " + method + " failed with message: Missing sessionId in " + method + " request"
	case f.Reason == fault.InvalidField && strings.HasSuffix(f.Field, "session_id"):
		rpc.Message = "Request " + method + " failed with message: Rejected " + method + " request with invalid sessionId: " + id
	}
	switch f.Reason {
	case fault.ToolNameConflict:
		rpc.Message = fmt.Sprintf("Request %s failed with message: External tool name clash: %s already registered by another connection", method, f.Metadata["tool"])
	case fault.SessionNotFound:
		rpc.Message = "Request " + method + " failed with message: Session not found for sessionId: " + id
	case fault.MethodUnknown, fault.MethodRefused:
		rpc.Code, rpc.Message = codeMethodNotFound, "Unhandled method "+method
	}
	return f.WithRPC(rpc)
}
