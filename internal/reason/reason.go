// Package reason turns errors into what a caller of the API sees: the reasons of
// copilot.bridge.v1.ErrorReason, the status code that goes with each, and Failure, the
// form that an error has inside a stream. The bridge, which puts failures into streams,
// and the server, which ends calls with statuses, share its one table.
//
// Codes are plain numbers here, so that the bridge needs to know nothing of what
// carries them.
package reason

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Reasons that only a server gives: nothing below it knows who calls.
const (
	// Unauthenticated says that a call came without credentials, or with wrong ones.
	Unauthenticated fault.Reason = "UNAUTHENTICATED"
	// Forbidden says that the caller may not do what it asked for.
	Forbidden fault.Reason = "FORBIDDEN"
)

// prefix is what the names of the enum have before the reason.
const prefix = "ERROR_REASON_"

// The numbers of google.rpc.Code.
const (
	cancelled          = 1
	invalidArgument    = 3
	deadlineExceeded   = 4
	notFound           = 5
	alreadyExists      = 6
	permissionDenied   = 7
	resourceExhausted  = 8
	failedPrecondition = 9
	aborted            = 10
	unimplemented      = 12
	internal           = 13
	unavailable        = 14
	unauthenticated    = 16
)

// codes is the status policy: what error.proto says of each reason.
var codes = map[bridgev1.ErrorReason]int32{
	bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD:        invalidArgument,
	bridgev1.ErrorReason_ERROR_REASON_PROMPT_EMPTY:         invalidArgument,
	bridgev1.ErrorReason_ERROR_REASON_PROMPT_TOO_LARGE:     invalidArgument,
	bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_INVALID:    invalidArgument,
	bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_CLASH:      alreadyExists,
	bridgev1.ErrorReason_ERROR_REASON_COMMAND_NAME_CLASH:   alreadyExists,
	bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID:       invalidArgument,
	bridgev1.ErrorReason_ERROR_REASON_JSON_EXTRA_FORBIDDEN: invalidArgument,
	bridgev1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED:    invalidArgument,

	bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:  notFound,
	bridgev1.ErrorReason_ERROR_REASON_SESSION_EXISTS:     alreadyExists,
	bridgev1.ErrorReason_ERROR_REASON_SESSION_IN_USE:     failedPrecondition,
	bridgev1.ErrorReason_ERROR_REASON_CREDENTIALS_NEEDED: failedPrecondition,
	bridgev1.ErrorReason_ERROR_REASON_SESSION_BUSY:       failedPrecondition,
	bridgev1.ErrorReason_ERROR_REASON_EVENT_NOT_FOUND:    notFound,
	bridgev1.ErrorReason_ERROR_REASON_SEND_IN_DOUBT:      aborted,
	bridgev1.ErrorReason_ERROR_REASON_SESSION_REFUSED:    failedPrecondition,
	bridgev1.ErrorReason_ERROR_REASON_PROVIDER_GONE:      failedPrecondition,

	bridgev1.ErrorReason_ERROR_REASON_CALLBACK_NOT_FOUND:    notFound,
	bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED:     failedPrecondition,
	bridgev1.ErrorReason_ERROR_REASON_PARTICIPANT_NOT_FOUND: notFound,
	bridgev1.ErrorReason_ERROR_REASON_PARTICIPANT_REPLACED:  aborted,
	bridgev1.ErrorReason_ERROR_REASON_FRAME_UNEXPECTED:      failedPrecondition,

	bridgev1.ErrorReason_ERROR_REASON_CLI_NOT_FOUND:        failedPrecondition,
	bridgev1.ErrorReason_ERROR_REASON_CLI_INSTALL_FAILED:   failedPrecondition,
	bridgev1.ErrorReason_ERROR_REASON_CLI_UNSUPPORTED:      failedPrecondition,
	bridgev1.ErrorReason_ERROR_REASON_CLI_UNVERIFIED:       failedPrecondition,
	bridgev1.ErrorReason_ERROR_REASON_CLI_START_FAILED:     unavailable,
	bridgev1.ErrorReason_ERROR_REASON_RUNTIME_LOST:         unavailable,
	bridgev1.ErrorReason_ERROR_REASON_RUNTIME_NOT_RUNNING:  failedPrecondition,
	bridgev1.ErrorReason_ERROR_REASON_CONFINEMENT_CHANGING: unavailable,
	bridgev1.ErrorReason_ERROR_REASON_CLI_CRASH_LOOP:       unavailable,
	bridgev1.ErrorReason_ERROR_REASON_RUNTIME_DIAL_FAILED:  unavailable,
	bridgev1.ErrorReason_ERROR_REASON_RUNTIME_AUTH_FAILED:  failedPrecondition,
	bridgev1.ErrorReason_ERROR_REASON_NOT_SIGNED_IN:        failedPrecondition,
	bridgev1.ErrorReason_ERROR_REASON_METHOD_UNKNOWN:       unimplemented,
	bridgev1.ErrorReason_ERROR_REASON_CLI_ERROR:            internal,
	bridgev1.ErrorReason_ERROR_REASON_CLI_PROTOCOL_ERROR:   internal,
	bridgev1.ErrorReason_ERROR_REASON_CLI_EXITED:           unavailable,
	bridgev1.ErrorReason_ERROR_REASON_CLI_HUNG:             unavailable,
	bridgev1.ErrorReason_ERROR_REASON_RUNTIME_STOPPING:     unavailable,

	bridgev1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED:   resourceExhausted,
	bridgev1.ErrorReason_ERROR_REASON_DRAINING:         unavailable,
	bridgev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED:  unauthenticated,
	bridgev1.ErrorReason_ERROR_REASON_FORBIDDEN:        permissionDenied,
	bridgev1.ErrorReason_ERROR_REASON_FEATURE_DISABLED: failedPrecondition,
	bridgev1.ErrorReason_ERROR_REASON_INTERNAL:         internal,
	bridgev1.ErrorReason_ERROR_REASON_TIMEOUT:          deadlineExceeded,
	bridgev1.ErrorReason_ERROR_REASON_CANCELLED:        cancelled,
	bridgev1.ErrorReason_ERROR_REASON_METHOD_REFUSED:   unimplemented,
}

// Enum returns the public value of r, ERROR_REASON_UNSPECIFIED if it has none.
func Enum(r fault.Reason) bridgev1.ErrorReason {
	return bridgev1.ErrorReason(bridgev1.ErrorReason_value[prefix+string(r)])
}

// Code returns the numeric google.rpc.Code of r, and whether r is a public reason.
func Code(r fault.Reason) (int32, bool) {
	code, ok := codes[Enum(r)]
	return code, ok
}
