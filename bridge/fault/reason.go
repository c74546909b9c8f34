package fault

import (
	"strings"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Reason is the class of a failure: the contract's enum. Values are never renamed or reused. Use Name for its text:
// string(r) compiles, but gives a wrong result.
type Reason = bridgev1.ErrorReason

// Reasons. copilot/bridge/v1/error.proto documents their meaning and status codes.
const (
	None = bridgev1.ErrorReason_ERROR_REASON_UNSPECIFIED // for an error without a reason

	InvalidField        = bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD
	PromptEmpty         = bridgev1.ErrorReason_ERROR_REASON_PROMPT_EMPTY
	PromptTooLarge      = bridgev1.ErrorReason_ERROR_REASON_PROMPT_TOO_LARGE
	ToolNameInvalid     = bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_INVALID
	ToolNameConflict    = bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_CONFLICT
	AnswerInvalid       = bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID
	JSONExtraForbidden  = bridgev1.ErrorReason_ERROR_REASON_JSON_EXTRA_FORBIDDEN
	RequestIDReused     = bridgev1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED
	CommandNameConflict = bridgev1.ErrorReason_ERROR_REASON_COMMAND_NAME_CONFLICT
	SessionNotFound     = bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND
	SessionExists       = bridgev1.ErrorReason_ERROR_REASON_SESSION_EXISTS
	SessionInUse        = bridgev1.ErrorReason_ERROR_REASON_SESSION_IN_USE
	CredentialsNeeded   = bridgev1.ErrorReason_ERROR_REASON_CREDENTIALS_NEEDED
	SessionBusy         = bridgev1.ErrorReason_ERROR_REASON_SESSION_BUSY
	EventNotFound       = bridgev1.ErrorReason_ERROR_REASON_EVENT_NOT_FOUND
	SendUnconfirmed     = bridgev1.ErrorReason_ERROR_REASON_SEND_UNCONFIRMED
	SessionRefused      = bridgev1.ErrorReason_ERROR_REASON_SESSION_REFUSED
	HandlerMissing      = bridgev1.ErrorReason_ERROR_REASON_HANDLER_MISSING
	SessionUnavailable  = bridgev1.ErrorReason_ERROR_REASON_SESSION_UNAVAILABLE
	CallbackNotFound    = bridgev1.ErrorReason_ERROR_REASON_CALLBACK_NOT_FOUND
	CallbackResolved    = bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED
	ParticipantNotFound = bridgev1.ErrorReason_ERROR_REASON_PARTICIPANT_NOT_FOUND
	ParticipantReplaced = bridgev1.ErrorReason_ERROR_REASON_PARTICIPANT_REPLACED
	FrameUnexpected     = bridgev1.ErrorReason_ERROR_REASON_FRAME_UNEXPECTED
	CLINotFound         = bridgev1.ErrorReason_ERROR_REASON_CLI_NOT_FOUND
	CLIInstallFailed    = bridgev1.ErrorReason_ERROR_REASON_CLI_INSTALL_FAILED
	CLIUnsupported      = bridgev1.ErrorReason_ERROR_REASON_CLI_UNSUPPORTED
	CLIStartFailed      = bridgev1.ErrorReason_ERROR_REASON_CLI_START_FAILED
	RuntimeLost         = bridgev1.ErrorReason_ERROR_REASON_RUNTIME_LOST
	CLICrashLoop        = bridgev1.ErrorReason_ERROR_REASON_CLI_CRASH_LOOP
	RuntimeDialFailed   = bridgev1.ErrorReason_ERROR_REASON_RUNTIME_DIAL_FAILED
	RuntimeAuthFailed   = bridgev1.ErrorReason_ERROR_REASON_RUNTIME_AUTH_FAILED
	NotSignedIn         = bridgev1.ErrorReason_ERROR_REASON_NOT_SIGNED_IN
	MethodUnknown       = bridgev1.ErrorReason_ERROR_REASON_METHOD_UNKNOWN
	CLIError            = bridgev1.ErrorReason_ERROR_REASON_CLI_ERROR
	CLIProtocolError    = bridgev1.ErrorReason_ERROR_REASON_CLI_PROTOCOL_ERROR
	CLIExited           = bridgev1.ErrorReason_ERROR_REASON_CLI_EXITED
	CLIHung             = bridgev1.ErrorReason_ERROR_REASON_CLI_HUNG
	RuntimeStopping     = bridgev1.ErrorReason_ERROR_REASON_RUNTIME_STOPPING
	RuntimeNotRunning   = bridgev1.ErrorReason_ERROR_REASON_RUNTIME_NOT_RUNNING
	ConfinementChanging = bridgev1.ErrorReason_ERROR_REASON_CONFINEMENT_CHANGING
	CLIUnverified       = bridgev1.ErrorReason_ERROR_REASON_CLI_UNVERIFIED
	RuntimeNotFound     = bridgev1.ErrorReason_ERROR_REASON_RUNTIME_NOT_FOUND
	RuntimeEnding       = bridgev1.ErrorReason_ERROR_REASON_RUNTIME_ENDING
	NodeNotFound        = bridgev1.ErrorReason_ERROR_REASON_NODE_NOT_FOUND
	NodesDraining       = bridgev1.ErrorReason_ERROR_REASON_NODES_DRAINING
	NodeLabelsUnmet     = bridgev1.ErrorReason_ERROR_REASON_NODE_LABELS_UNMET
	LimitExceeded       = bridgev1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED
	Draining            = bridgev1.ErrorReason_ERROR_REASON_DRAINING
	Unauthenticated     = bridgev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED
	Forbidden           = bridgev1.ErrorReason_ERROR_REASON_FORBIDDEN
	FeatureDisabled     = bridgev1.ErrorReason_ERROR_REASON_FEATURE_DISABLED
	Internal            = bridgev1.ErrorReason_ERROR_REASON_INTERNAL
	Timeout             = bridgev1.ErrorReason_ERROR_REASON_TIMEOUT
	Cancelled           = bridgev1.ErrorReason_ERROR_REASON_CANCELLED
	MethodRefused       = bridgev1.ErrorReason_ERROR_REASON_METHOD_REFUSED
)

// prefix is the common prefix of the enum's value names.
const prefix = "ERROR_REASON_"

// Name returns a reason's text in ErrorInfo.reason, in logs and on disk: its name in the contract without the prefix.
// It is empty for ERROR_REASON_UNSPECIFIED.
func Name(r Reason) string {
	if r == None {
		return ""
	}
	return strings.TrimPrefix(r.String(), prefix)
}
