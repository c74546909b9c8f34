package fault

// Reasons of requests, sessions and callbacks. Their meaning and their status codes
// are documented in copilot/bridge/v1/error.proto.
const (
	InvalidField       Reason = "INVALID_FIELD"
	PromptEmpty        Reason = "PROMPT_EMPTY"
	PromptTooLarge     Reason = "PROMPT_TOO_LARGE"
	ToolNameInvalid    Reason = "TOOL_NAME_INVALID"
	ToolNameClash      Reason = "TOOL_NAME_CLASH"
	AnswerInvalid      Reason = "ANSWER_INVALID"
	JSONExtraForbidden Reason = "JSON_EXTRA_FORBIDDEN"
	RequestIDReused    Reason = "REQUEST_ID_REUSED"
	CommandNameClash   Reason = "COMMAND_NAME_CLASH"

	SessionNotFound   Reason = "SESSION_NOT_FOUND"
	SessionExists     Reason = "SESSION_EXISTS"
	SessionInUse      Reason = "SESSION_IN_USE"
	CredentialsNeeded Reason = "CREDENTIALS_NEEDED"
	SessionBusy       Reason = "SESSION_BUSY"
	EventNotFound     Reason = "EVENT_NOT_FOUND"
	SendInDoubt       Reason = "SEND_IN_DOUBT"
	SessionRefused    Reason = "SESSION_REFUSED"
	ProviderGone      Reason = "PROVIDER_GONE"

	CallbackNotFound    Reason = "CALLBACK_NOT_FOUND"
	CallbackResolved    Reason = "CALLBACK_RESOLVED"
	ParticipantNotFound Reason = "PARTICIPANT_NOT_FOUND"
	ParticipantReplaced Reason = "PARTICIPANT_REPLACED"
	FrameUnexpected     Reason = "FRAME_UNEXPECTED"

	RuntimeLost Reason = "RUNTIME_LOST"
	// RuntimeNotRunning says that no runtime of a profile runs, and the caller may not start one.
	RuntimeNotRunning Reason = "RUNTIME_NOT_RUNNING"
	// ConfinementChanging says that processes run on with an earlier confinement of the tenant.
	ConfinementChanging Reason = "CONFINEMENT_CHANGING"
	NotSignedIn         Reason = "NOT_SIGNED_IN"
	MethodUnknown       Reason = "METHOD_UNKNOWN"
	CLIError            Reason = "CLI_ERROR"

	LimitExceeded   Reason = "LIMIT_EXCEEDED"
	Draining        Reason = "DRAINING"
	FeatureDisabled Reason = "FEATURE_DISABLED"
	Forbidden       Reason = "FORBIDDEN"
	Internal        Reason = "INTERNAL"
	MethodRefused   Reason = "METHOD_REFUSED"
	Timeout         Reason = "TIMEOUT"
	Cancelled       Reason = "CANCELLED"
)
