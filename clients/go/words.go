package copilot

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// The words below are the names of the API's enums, without their prefix and in lower case, as in all client libraries.
// A value that is newer than this library is its number.

// SessionState says whether a session is in memory, and what opens it otherwise: see SessionState of the API.
type SessionState string

// States of sessions.
const (
	StateLoaded            SessionState = "loaded"
	StateUnloaded          SessionState = "unloaded"
	StateDisconnected      SessionState = "disconnected"
	StateCredentialsNeeded SessionState = "credentials_needed"
	StateStored            SessionState = "stored"
	StateDamaged           SessionState = "damaged"
)

// TurnStatus says how a turn ended.
type TurnStatus string

// How turns end. TurnTimedOut ends only the wait: the turn continues.
const (
	TurnCompleted   TurnStatus = "completed"
	TurnAborted     TurnStatus = "aborted"
	TurnFailed      TurnStatus = "failed"
	TurnStalled     TurnStatus = "stalled"
	TurnRuntimeLost TurnStatus = "runtime_lost"
	TurnTimedOut    TurnStatus = "timed_out"
)

// GapReason says why events are missing: see GapReason of the API.
type GapReason string

// Reasons of gaps.
const (
	GapEphemeralLost GapReason = "ephemeral_lost"
	GapTrimmed       GapReason = "trimmed"
	GapEpochEnded    GapReason = "epoch_ended"
)

// CallbackKind is a kind of callback, the name of its case of Callback.request in the API.
type CallbackKind string

// Kinds of callbacks that people answer, and tool calls. The API has further ones.
const (
	CallbackToolCall            CallbackKind = "tool_call"
	CallbackPermission          CallbackKind = "permission"
	CallbackUserInput           CallbackKind = "user_input"
	CallbackElicitation         CallbackKind = "elicitation"
	CallbackExitPlanMode        CallbackKind = "exit_plan_mode"
	CallbackAutoModeSwitch      CallbackKind = "auto_mode_switch"
	CallbackInstallationConfirm CallbackKind = "installation_confirm"
)

// CallbackOutcome says how a callback ended: see CallbackOutcome of the API.
type CallbackOutcome string

// How callbacks end.
const (
	CallbackAnswered     CallbackOutcome = "answered"
	CallbackTimedOut     CallbackOutcome = "timed_out"
	CallbackUnhandled    CallbackOutcome = "unhandled"
	CallbackWithdrawn    CallbackOutcome = "withdrawn"
	CallbackRuntimeLost  CallbackOutcome = "runtime_lost"
	CallbackSessionEnded CallbackOutcome = "session_ended"
)

// CloseReason says why the server ended a participation: see CloseReason of the API.
type CloseReason string

// Reasons of ends.
const (
	ClosedDisconnected CloseReason = "disconnected"
	ClosedDeleted      CloseReason = "deleted"
	ClosedLeft         CloseReason = "left"
	ClosedReplaced     CloseReason = "replaced"
	ClosedDraining     CloseReason = "draining"
	ClosedUnshared     CloseReason = "unshared"
)

// ChangeKind says what happened to a session.
type ChangeKind string

// Changes of sessions: see SessionChange of the API.
const (
	ChangeCurrent      ChangeKind = "current"
	ChangeCreated      ChangeKind = "created"
	ChangeUpdated      ChangeKind = "updated"
	ChangeDeleted      ChangeKind = "deleted"
	ChangeForeground   ChangeKind = "foreground"
	ChangeBackground   ChangeKind = "background"
	ChangeDisconnected ChangeKind = "disconnected"
	ChangeReset        ChangeKind = "reset"
	ChangeShared       ChangeKind = "shared"
	ChangeUnshared     ChangeKind = "unshared"
	ChangeUnmatched    ChangeKind = "unmatched"
	ChangeNotification ChangeKind = "notification"
)

// Lifetime says when a session ends.
type Lifetime string

// Lifetimes of sessions.
const (
	// LifetimeKeep keeps the session until it is disconnected or deleted.
	LifetimeKeep Lifetime = "keep"
	// LifetimeEndWithLastParticipant disconnects it when its last participant has left.
	LifetimeEndWithLastParticipant Lifetime = "end_with_last_participant"
)

// OnInterruption is the server's reaction to a turn that ended with its CLI process.
type OnInterruption string

// Reactions to interrupted turns.
const (
	// InterruptionReport reports it.
	InterruptionReport OnInterruption = "report"
	// InterruptionContinue also tells the agent to continue, at most three times in a row.
	InterruptionContinue OnInterruption = "continue"
)

// UsageGroup is what rows of [Client.Usage] are for.
type UsageGroup string

// Groups of rows.
const (
	UsageByDay     UsageGroup = "day"
	UsageByModel   UsageGroup = "model"
	UsageBySession UsageGroup = "session"
	UsageByOwner   UsageGroup = "owner"
)

// enum is an enum of the API.
type enum interface {
	~int32
	protoreflect.Enum
}

// wordOf is the word of an enum's value; its number if this library does not know it.
func wordOf[Word ~string](value protoreflect.Enum) Word {
	values := value.Descriptor().Values()
	known := values.ByNumber(value.Number())
	if known == nil {
		return Word(strconv.Itoa(int(value.Number())))
	}
	return Word(strings.ToLower(strings.TrimPrefix(string(known.Name()), prefixOf(values))))
}

// valueOf is the enum's value that a word is for; unspecified for an empty word.
func valueOf[Enum enum, Word ~string](word Word) (Enum, error) {
	var unspecified Enum
	if word == "" {
		return unspecified, nil
	}
	values := unspecified.Descriptor().Values()
	value := values.ByName(protoreflect.Name(prefixOf(values) + strings.ToUpper(string(word))))
	if value == nil || wordOf[Word](Enum(value.Number())) != word {
		return unspecified, fmt.Errorf("copilot: %s has no %q", unspecified.Descriptor().Name(), word)
	}
	return Enum(value.Number()), nil
}

// valuesOf are the values of several words.
func valuesOf[Enum enum, Word ~string](words []Word) ([]Enum, error) {
	var all []Enum
	for _, word := range words {
		value, err := valueOf[Enum](word)
		if err != nil {
			return nil, err
		}
		all = append(all, value)
	}
	return all, nil
}

// prefixOf begins the names of an enum's values. That of 0 says that there is none.
func prefixOf(values protoreflect.EnumValueDescriptors) string {
	return strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
}
