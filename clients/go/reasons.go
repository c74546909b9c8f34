package copilot

import bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"

// ErrorReason is the cause of an [Error], for programs.
type ErrorReason = bridgev1.ErrorReason

// Reasons of errors; error.proto of the API describes them.
const (
	ReasonInvalidField        = bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD
	ReasonPromptEmpty         = bridgev1.ErrorReason_ERROR_REASON_PROMPT_EMPTY
	ReasonPromptTooLarge      = bridgev1.ErrorReason_ERROR_REASON_PROMPT_TOO_LARGE
	ReasonToolNameInvalid     = bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_INVALID
	ReasonToolNameConflict    = bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_CONFLICT
	ReasonAnswerInvalid       = bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID
	ReasonJSONExtraForbidden  = bridgev1.ErrorReason_ERROR_REASON_JSON_EXTRA_FORBIDDEN
	ReasonRequestIDReused     = bridgev1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED
	ReasonCommandNameConflict = bridgev1.ErrorReason_ERROR_REASON_COMMAND_NAME_CONFLICT
	ReasonSessionNotFound     = bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND
	ReasonSessionExists       = bridgev1.ErrorReason_ERROR_REASON_SESSION_EXISTS
	ReasonSessionInUse        = bridgev1.ErrorReason_ERROR_REASON_SESSION_IN_USE
	ReasonCredentialsNeeded   = bridgev1.ErrorReason_ERROR_REASON_CREDENTIALS_NEEDED
	ReasonSessionBusy         = bridgev1.ErrorReason_ERROR_REASON_SESSION_BUSY
	ReasonEventNotFound       = bridgev1.ErrorReason_ERROR_REASON_EVENT_NOT_FOUND
	ReasonSendUnconfirmed     = bridgev1.ErrorReason_ERROR_REASON_SEND_UNCONFIRMED
	ReasonSessionRefused      = bridgev1.ErrorReason_ERROR_REASON_SESSION_REFUSED
	ReasonHandlerMissing      = bridgev1.ErrorReason_ERROR_REASON_HANDLER_MISSING
	ReasonSessionUnavailable  = bridgev1.ErrorReason_ERROR_REASON_SESSION_UNAVAILABLE
	ReasonCallbackNotFound    = bridgev1.ErrorReason_ERROR_REASON_CALLBACK_NOT_FOUND
	ReasonCallbackResolved    = bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED
	ReasonParticipantNotFound = bridgev1.ErrorReason_ERROR_REASON_PARTICIPANT_NOT_FOUND
	ReasonParticipantReplaced = bridgev1.ErrorReason_ERROR_REASON_PARTICIPANT_REPLACED
	ReasonFrameUnexpected     = bridgev1.ErrorReason_ERROR_REASON_FRAME_UNEXPECTED
	ReasonCLINotFound         = bridgev1.ErrorReason_ERROR_REASON_CLI_NOT_FOUND
	ReasonCLIInstallFailed    = bridgev1.ErrorReason_ERROR_REASON_CLI_INSTALL_FAILED
	ReasonCLIUnsupported      = bridgev1.ErrorReason_ERROR_REASON_CLI_UNSUPPORTED
	ReasonCLIStartFailed      = bridgev1.ErrorReason_ERROR_REASON_CLI_START_FAILED
	ReasonRuntimeLost         = bridgev1.ErrorReason_ERROR_REASON_RUNTIME_LOST
	ReasonCLICrashLoop        = bridgev1.ErrorReason_ERROR_REASON_CLI_CRASH_LOOP
	ReasonRuntimeDialFailed   = bridgev1.ErrorReason_ERROR_REASON_RUNTIME_DIAL_FAILED
	ReasonRuntimeAuthFailed   = bridgev1.ErrorReason_ERROR_REASON_RUNTIME_AUTH_FAILED
	ReasonNotSignedIn         = bridgev1.ErrorReason_ERROR_REASON_NOT_SIGNED_IN
	ReasonMethodUnknown       = bridgev1.ErrorReason_ERROR_REASON_METHOD_UNKNOWN
	ReasonCLIError            = bridgev1.ErrorReason_ERROR_REASON_CLI_ERROR
	ReasonCLIProtocolError    = bridgev1.ErrorReason_ERROR_REASON_CLI_PROTOCOL_ERROR
	ReasonCLIExited           = bridgev1.ErrorReason_ERROR_REASON_CLI_EXITED
	ReasonCLIHung             = bridgev1.ErrorReason_ERROR_REASON_CLI_HUNG
	ReasonRuntimeStopping     = bridgev1.ErrorReason_ERROR_REASON_RUNTIME_STOPPING
	ReasonRuntimeNotRunning   = bridgev1.ErrorReason_ERROR_REASON_RUNTIME_NOT_RUNNING
	ReasonConfinementChanging = bridgev1.ErrorReason_ERROR_REASON_CONFINEMENT_CHANGING
	ReasonCLIUnverified       = bridgev1.ErrorReason_ERROR_REASON_CLI_UNVERIFIED
	ReasonRuntimeNotFound     = bridgev1.ErrorReason_ERROR_REASON_RUNTIME_NOT_FOUND
	ReasonRuntimeEnding       = bridgev1.ErrorReason_ERROR_REASON_RUNTIME_ENDING
	ReasonLimitExceeded       = bridgev1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED
	ReasonDraining            = bridgev1.ErrorReason_ERROR_REASON_DRAINING
	ReasonUnauthenticated     = bridgev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED
	ReasonForbidden           = bridgev1.ErrorReason_ERROR_REASON_FORBIDDEN
	ReasonFeatureDisabled     = bridgev1.ErrorReason_ERROR_REASON_FEATURE_DISABLED
	ReasonInternal            = bridgev1.ErrorReason_ERROR_REASON_INTERNAL
	ReasonTimeout             = bridgev1.ErrorReason_ERROR_REASON_TIMEOUT
	ReasonCancelled           = bridgev1.ErrorReason_ERROR_REASON_CANCELLED
	ReasonMethodRefused       = bridgev1.ErrorReason_ERROR_REASON_METHOD_REFUSED
	ReasonNodeNotFound        = bridgev1.ErrorReason_ERROR_REASON_NODE_NOT_FOUND
	ReasonNodesDraining       = bridgev1.ErrorReason_ERROR_REASON_NODES_DRAINING
	ReasonNodeLabelsUnmet     = bridgev1.ErrorReason_ERROR_REASON_NODE_LABELS_UNMET
)
