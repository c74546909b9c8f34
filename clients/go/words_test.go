package copilot

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// constants are the constants of a type as texts.
func constants[Word ~string](words ...Word) (texts []string) {
	for _, word := range words {
		texts = append(texts, string(word))
	}
	return texts
}

// Each value of the API's enums has a constant, and no constant is anything else. Callbacks have many kinds, of which
// the constants are some.
func TestConstantsAreTheWordsOfTheAPI(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		enum    protoreflect.Enum
		without string // a value that programs do not receive
		partly  bool
		got     []string
	}{
		{enum: bridgev1.SessionState(0), got: constants(StateLoaded, StateUnloaded, StateDisconnected, StateCredentialsNeeded,
			StateStored, StateDamaged)},
		{enum: bridgev1.TurnStatus(0), got: constants(TurnCompleted, TurnAborted, TurnFailed, TurnStalled, TurnRuntimeLost,
			TurnTimedOut)},
		{enum: bridgev1.GapReason(0), got: constants(GapEphemeralLost, GapTrimmed, GapEpochEnded)},
		{enum: bridgev1.CallbackOutcome(0), got: constants(CallbackAnswered, CallbackTimedOut, CallbackUnhandled,
			CallbackWithdrawn, CallbackRuntimeLost, CallbackSessionEnded)},
		{enum: bridgev1.CloseReason(0), got: constants(ClosedDisconnected, ClosedDeleted, ClosedLeft, ClosedReplaced,
			ClosedDraining, ClosedUnshared)},
		{enum: bridgev1.SessionChange(0), without: "heartbeat", got: constants(ChangeCurrent, ChangeCreated, ChangeUpdated,
			ChangeDeleted, ChangeForeground, ChangeBackground, ChangeDisconnected, ChangeReset, ChangeShared, ChangeUnshared,
			ChangeUnmatched, ChangeNotification)},
		{enum: bridgev1.Lifetime(0), got: constants(LifetimeKeep, LifetimeEndWithLastParticipant)},
		{enum: bridgev1.OnInterruption(0), got: constants(InterruptionReport, InterruptionContinue)},
		{enum: bridgev1.UsageGroup(0), got: constants(UsageByDay, UsageByModel, UsageBySession, UsageByOwner)},
		{enum: bridgev1.CallbackKind(0), partly: true, got: constants(CallbackToolCall, CallbackPermission,
			CallbackUserInput, CallbackElicitation, CallbackExitPlanMode, CallbackAutoModeSwitch,
			CallbackInstallationConfirm)},
	} {
		var want []string
		values := tc.enum.Descriptor().Values()
		for i := range values.Len() {
			name := strings.ToLower(string(values.Get(i).Name()))
			word := strings.TrimPrefix(name, strings.TrimSuffix(strings.ToLower(string(values.Get(0).Name())), "unspecified"))
			if i > 0 && word != tc.without && (!tc.partly || slices.Contains(tc.got, word)) {
				want = append(want, word)
			}
		}
		if !slices.Equal(tc.got, want) {
			t.Errorf("%s has the words %q, want %q", tc.enum.Descriptor().Name(), tc.got, want)
		}
	}
}

func TestWordsAndValues(t *testing.T) {
	t.Parallel()
	for value, want := range map[protoreflect.Enum]string{
		bridgev1.SessionState_SESSION_STATE_CREDENTIALS_NEEDED: "credentials_needed",
		bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL:          "tool_call",
		bridgev1.TurnStatus_TURN_STATUS_UNSPECIFIED:            "unspecified",
		bridgev1.TurnStatus(99):                                "99",
	} {
		if got := wordOf[string](value); got != want {
			t.Errorf("%v is %q, want %q", value, got, want)
		}
	}
	for word, want := range map[Lifetime]string{
		"": "LIFETIME_UNSPECIFIED <nil>", LifetimeEndWithLastParticipant: "LIFETIME_END_WITH_LAST_PARTICIPANT <nil>",
		"forever": `LIFETIME_UNSPECIFIED copilot: Lifetime has no "forever"`,
	} {
		value, err := valueOf[bridgev1.Lifetime](word)
		if got := fmt.Sprint(value, " ", err); got != want {
			t.Errorf("%q is %s, want %s", word, got, want)
		}
	}
}

// Each reason of the API has a constant, so that programs need not import its package.
func TestReasonsAreComplete(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("reasons.go")
	if err != nil {
		t.Fatal(err)
	}
	for number, name := range bridgev1.ErrorReason_name {
		if number != 0 && !strings.Contains(string(source), " = bridgev1.ErrorReason_"+name+"\n") {
			t.Errorf("%s has no constant", name)
		}
	}
}
