package callback

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// notCallbacks are what the CLI sends or asks that is no callback of a session, and why.
var notCallbacks = map[string]string{
	"gitHubTelemetry.event":   "a notification, for a process that asked for telemetry",
	"host.event":              "a notification, which RuntimeService.WatchHostEvents streams without tokens",
	"host.exited":             "a notification of the CLI's own supervisor",
	"host.sessionReleased":    "a notification of the CLI's own supervisor",
	"host.materializeSession": "asked of the CLI's own supervisor, which the bridge is not",
	"host.registerSession":    "asked of the CLI's own supervisor, which the bridge is not",
	"host.shutdown":           "asked of the CLI's own supervisor, which the bridge is not",
	"host.unregisterSession":  "asked of the CLI's own supervisor, which the bridge is not",
	"session.event":           "the journal's source",
	"session.lifecycle":       "a notification, watched with WatchSessions",
	"shell.exit":              "a notification about a command of session.shell.exec",
	"shell.output":            "a notification about a command of session.shell.exec",
	"tool.user_requested":     "tells that the user ran a tool by hand",
}

// asked is what the CLI asks, by method or event type: the message with the request, and
// the one with the answer where the descriptors have it.
type asked struct {
	request, answer protoreflect.MessageDescriptor
}

// everything is every method that the CLI calls in a client, and every event that asks,
// of all supported versions.
func everything(t *testing.T) map[string]asked {
	t.Helper()
	all := map[string]asked{}
	protoregistry.GlobalFiles.RangeFilesByPackage("copilot.cli.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				if rules := methodRules(methods.Get(j)); rules.GetCallback() {
					all[rules.GetMethod()] = asked{methods.Get(j).Input(), methods.Get(j).Output()}
				}
			}
		}
		return true
	})
	for eventType, data := range eventTypes() {
		if asks(eventType) {
			all[eventType] = asked{request: data}
		}
	}
	return all
}

func asks(eventType string) bool {
	return strings.HasSuffix(eventType, "requested") || strings.HasSuffix(eventType, "_required") ||
		eventType == CommandExecute || eventType == "command.queued"
}

func methodRules(m protoreflect.MethodDescriptor) *jsonv1.MethodRules {
	rules, _ := proto.GetExtension(m.Options(), jsonv1.E_Method).(*jsonv1.MethodRules)
	return rules
}

func tags(oneof protoreflect.OneofDescriptor) map[string]protoreflect.MessageDescriptor {
	all := map[string]protoreflect.MessageDescriptor{}
	for i := range oneof.Fields().Len() {
		field := oneof.Fields().Get(i)
		rules, _ := proto.GetExtension(field.Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
		if rules.GetTag() != "" {
			all[rules.GetTag()] = field.Message()
		}
	}
	return all
}

func eventTypes() map[string]protoreflect.MessageDescriptor {
	return tags((*cliv1.SessionEvent)(nil).ProtoReflect().Descriptor().Oneofs().ByName("data"))
}

// Every request of the CLI is a kind of the API, reports one, or is known not to be one.
func TestEverythingAskedIsKnown(t *testing.T) {
	t.Parallel()
	all := everything(t)
	counted := 0
	for method := range all {
		_, kind := types[method]
		twin, told := Told[method]
		_, not := notCallbacks[method]
		switch n := count(kind, told, not); {
		case n == 0:
			t.Errorf("the CLI asks %q, which is no kind of callback", method)
		case n > 1:
			t.Errorf("%q is listed %d times", method, n)
		case told && types[twin] == 0:
			t.Errorf("%q tells of %q, which is no kind of callback", method, twin)
		}
		counted++
	}
	// The number says that the descriptors were really looked through.
	if counted < 60 {
		t.Errorf("the CLI asks only %d things", counted)
	}
	for _, table := range [][]string{
		slices.Collect(maps.Keys(types)), slices.Collect(maps.Keys(Told)), slices.Collect(maps.Keys(notCallbacks)),
	} {
		for _, method := range table {
			if _, ok := all[method]; !ok {
				t.Errorf("%q is listed, but no supported CLI asks it", method)
			}
		}
	}
	for _, k := range slices.Concat(events, requests) {
		if k.Type == bridgev1.CallbackKind_CALLBACK_KIND_RAW {
			t.Errorf("%q has rules, but no kind of the API", k.Method)
		}
	}
}

func count(conditions ...bool) (n int) {
	for _, c := range conditions {
		if c {
			n++
		}
	}
	return n
}

// ownForm are the kinds whose answer, or whose request, is a message that the bridge
// gives its form.
var ownForm = map[string]bool{HooksInvoke: true}

// untagged are the cases without a tag; their kinds have separate code.
var untagged = map[string]bool{ToolRequested: true, PermissionRequested: true}

// Every kind has a request and an answer, of the messages that the CLI's methods have.
func TestContractAgrees(t *testing.T) {
	t.Parallel()
	requests := tags((*bridgev1.Callback)(nil).ProtoReflect().Descriptor().Oneofs().ByName("request"))
	answers := tags((*bridgev1.Answer)(nil).ProtoReflect().Descriptor().Oneofs().ByName("answer"))
	all := everything(t)
	for method := range types {
		request, ok := requests[method]
		switch {
		case !ok:
			t.Errorf("%s: Callback.request has no case", method)
		case request != all[method].request && !ownForm[method]:
			t.Errorf("%s: the request is a %s, the CLI's a %s", method, request.FullName(), all[method].request.FullName())
		}
		answer, ok := answers[method]
		switch want := all[method].answer; {
		case ok == untagged[method]:
			t.Errorf("%s: Answer.answer has a case: %v", method, ok)
		case ok && want != nil && answer != want && !ownForm[method]:
			t.Errorf("%s: the answer is a %s, the CLI's a %s", method, answer.FullName(), want.FullName())
		}
	}
	for _, table := range []map[string]protoreflect.MessageDescriptor{requests, answers} {
		for method := range table {
			if _, ok := types[method]; !ok {
				t.Errorf("%s: a case, but no kind", method)
			}
		}
	}
	values := bridgev1.CallbackKind(0).Descriptor().Values()
	for i := range values.Len() {
		kind := bridgev1.CallbackKind(values.Get(i).Number())
		method, ok := MethodOf(kind)
		raw := kind == bridgev1.CallbackKind_CALLBACK_KIND_RAW || kind == bridgev1.CallbackKind_CALLBACK_KIND_UNSPECIFIED
		if ok == raw || ok && types[method] != kind {
			t.Errorf("%v is %q", kind, method)
		}
	}
}

// Events are answered with methods that there are, in members that these have, and end
// with events that there are.
func TestEventsAreAnswerable(t *testing.T) {
	t.Parallel()
	parameters := map[string]protoreflect.MessageDescriptor{}
	protoregistry.GlobalFiles.RangeFilesByPackage("copilot.cli.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				if rules := methodRules(methods.Get(j)); !rules.GetCallback() {
					parameters[rules.GetMethod()] = methods.Get(j).Input()
				}
			}
		}
		return true
	})
	known := eventTypes()
	answers := tags((*bridgev1.Answer)(nil).ProtoReflect().Descriptor().Oneofs().ByName("answer"))
	for _, k := range events {
		params := parameters[k.AnswerMethod]
		switch {
		case params == nil:
			t.Errorf("%s: no method %q", k.Method, k.AnswerMethod)
			continue
		case params.Fields().ByName("request_id") == nil:
			t.Errorf("%s: %s has no request_id", k.Method, k.AnswerMethod)
		case known[k.DoneEvent] == nil:
			t.Errorf("%s: no event %q", k.Method, k.DoneEvent)
		}
		if k.AnswerMember == "" {
			continue
		}
		member := params.Fields().ByJSONName(k.AnswerMember)
		if member == nil {
			t.Errorf("%s: %s has no %q", k.Method, k.AnswerMethod, k.AnswerMember)
		} else if answer := answers[k.Method]; answer != nil && member.Message() != answer {
			t.Errorf("%s: the answer is a %s, %s takes a %s", k.Method, answer.FullName(), k.AnswerMethod, member.Message().FullName())
		}
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	for _, k := range slices.Concat(events, requests) {
		if k.Fallback == nil || k.Event != (k.AnswerMethod != "" && k.DoneEvent != "") {
			t.Errorf("%s: %+v", k.Method, k)
		}
		if k.Event && (ForEvent(k.Method) != k || !Ends(k.DoneEvent) || ForRequest(k.Method) == k) ||
			!k.Event && (ForRequest(k.Method) != k || ForEvent(k.Method) != nil) {
			t.Errorf("%s is not found as what it is", k.Method)
		}
		if SwitchFor(k.Method) != k.Switch || k.Switch != "" && !slices.Contains(Switches(), k.Switch) {
			t.Errorf("%s: switch %q", k.Method, k.Switch)
		}
		if slices.Contains(Interests(), k.Method) != k.Interest {
			t.Errorf("%s: interest %v", k.Method, k.Interest)
		}
	}
	if ForEvent("assistant.message") != nil || Ends("assistant.message") || SwitchFor("x") != "" {
		t.Error("what asks nothing has a kind")
	}
	if k := ForRequest("something.new"); k.Method != "something.new" || k.Type != bridgev1.CallbackKind_CALLBACK_KIND_RAW {
		t.Errorf("a new method is %+v", k)
	}
	if k := ForRequest("canvas.open"); k.Type != bridgev1.CallbackKind_CALLBACK_KIND_CANVAS_OPEN {
		t.Errorf("a method without rules of its own is %+v", k)
	}
}
