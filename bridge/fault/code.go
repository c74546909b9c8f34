package fault

// Values of google.rpc.Code. The bridge does not import gRPC.
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

// codes maps reasons to status codes, as error.proto documents.
var codes = map[Reason]int32{
	InvalidField:        invalidArgument,
	PromptEmpty:         invalidArgument,
	PromptTooLarge:      invalidArgument,
	ToolNameInvalid:     invalidArgument,
	ToolNameConflict:    alreadyExists,
	CommandNameConflict: alreadyExists,
	AnswerInvalid:       invalidArgument,
	JSONExtraForbidden:  invalidArgument,
	RequestIDReused:     invalidArgument,

	SessionNotFound:    notFound,
	SessionExists:      alreadyExists,
	SessionInUse:       failedPrecondition,
	CredentialsNeeded:  failedPrecondition,
	SessionBusy:        failedPrecondition,
	EventNotFound:      notFound,
	SendUnconfirmed:    aborted,
	SessionRefused:     failedPrecondition,
	HandlerMissing:     failedPrecondition,
	SessionUnavailable: unavailable,

	CallbackNotFound:    notFound,
	CallbackResolved:    failedPrecondition,
	ParticipantNotFound: notFound,
	ParticipantReplaced: aborted,
	FrameUnexpected:     failedPrecondition,

	CLINotFound:         failedPrecondition,
	CLIInstallFailed:    failedPrecondition,
	CLIUnsupported:      failedPrecondition,
	CLIUnverified:       failedPrecondition,
	RuntimeNotFound:     notFound,
	RuntimeEnding:       failedPrecondition,
	NodeNotFound:        notFound,
	NodesDraining:       failedPrecondition,
	NodeLabelsUnmet:     failedPrecondition,
	CLIStartFailed:      unavailable,
	RuntimeLost:         unavailable,
	RuntimeNotRunning:   failedPrecondition,
	ConfinementChanging: unavailable,
	CLICrashLoop:        unavailable,
	RuntimeDialFailed:   unavailable,
	RuntimeAuthFailed:   failedPrecondition,
	NotSignedIn:         failedPrecondition,
	MethodUnknown:       unimplemented,
	CLIError:            internal,
	CLIProtocolError:    internal,
	CLIExited:           unavailable,
	CLIHung:             unavailable,
	RuntimeStopping:     unavailable,

	LimitExceeded:   resourceExhausted,
	Draining:        unavailable,
	Unauthenticated: unauthenticated,
	Forbidden:       permissionDenied,
	FeatureDisabled: failedPrecondition,
	Internal:        internal,
	Timeout:         deadlineExceeded,
	Cancelled:       cancelled,
	MethodRefused:   unimplemented,
}

// Code returns the google.rpc.Code of a reason; false for a reason that the contract does not have.
func Code(r Reason) (int32, bool) {
	code, ok := codes[r]
	return code, ok
}
