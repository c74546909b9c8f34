package schemagen

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// The tests here look at what is committed, by its descriptors, and need no
// schemas.

// committedMessages returns every message of the generated package.
func committedMessages(t *testing.T) map[string]protoreflect.MessageDescriptor {
	t.Helper()
	out := map[string]protoreflect.MessageDescriptor{}
	protoregistry.GlobalFiles.RangeFilesByPackage(protoPackage, func(f protoreflect.FileDescriptor) bool {
		for i := range f.Messages().Len() {
			m := f.Messages().Get(i)
			out[string(m.Name())] = m
		}
		return true
	})
	if len(out) < 900 {
		t.Fatalf("found only %d messages", len(out))
	}
	return out
}

func rulesOf(m protoreflect.MessageDescriptor) *jsonv1.MessageRules {
	r, _ := proto.GetExtension(m.Options(), jsonv1.E_Message).(*jsonv1.MessageRules)
	return r
}

func fieldRulesOf(f protoreflect.FieldDescriptor) *jsonv1.FieldRules {
	r, _ := proto.GetExtension(f.Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
	return r
}

func TestCommittedNumbersAreInTheLedger(t *testing.T) {
	t.Parallel()
	ledger, err := ReadLedger("ledger.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range committedMessages(t) {
		var known []int
		for _, n := range ledger.Messages[name] {
			known = append(known, n)
		}
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if n := int(f.Number()); n != jsonExtraNumber && n != unrecognizedNumber && !slices.Contains(known, n) {
				t.Errorf("%s has the number %d, which the ledger does not know", f.FullName(), n)
			}
		}
	}
}

func TestCommittedMessagesKeepToTheirShape(t *testing.T) {
	t.Parallel()
	for name, m := range committedMessages(t) {
		byNumber := func(n protoreflect.FieldNumber) string {
			if f := m.Fields().ByNumber(n); f != nil {
				return string(f.Name())
			}
			return ""
		}
		extra, rest := byNumber(jsonExtraNumber), byNumber(unrecognizedNumber)
		ok := false
		switch rules := rulesOf(m); rules.GetShape() {
		case jsonv1.Shape_SHAPE_UNSPECIFIED, jsonv1.Shape_SHAPE_OBJECT:
			ok = extra == "json_extra" && rest == ""
		case jsonv1.Shape_SHAPE_ENVELOPE:
			ok = extra == "json_extra" && rest == "unrecognized" && m.Oneofs().ByName("data") != nil &&
				rules.GetDiscriminator() != "" && rules.GetDataMember() != ""
		case jsonv1.Shape_SHAPE_UNION:
			ok = extra == "" && rest == "unrecognized" && m.Oneofs().ByName("variant") != nil
		case jsonv1.Shape_SHAPE_LIST:
			ok = extra == "" && m.Fields().ByName("items").IsList()
		case jsonv1.Shape_SHAPE_MAP:
			ok = extra == "" && m.Fields().ByName("entries").IsMap()
		case jsonv1.Shape_SHAPE_VALUE:
			ok = extra == "" && m.Fields().ByName("value") != nil
		case jsonv1.Shape_SHAPE_NULL:
			ok = extra == "" && m.Fields().Len() == 1 && rest == "unrecognized"
		}
		if !ok {
			t.Errorf("%s: %v with the fields %q and %q", name, rulesOf(m).GetShape(), extra, rest)
		}
		checkFields(t, m)
	}
}

// checkFields checks what the translation relies on, field by field.
func checkFields(t *testing.T, m protoreflect.MessageDescriptor) {
	t.Helper()
	members := map[string]bool{}
	for _, c := range rulesOf(m).GetConsts() {
		members[c.GetName()] = true
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		rules := fieldRulesOf(f)
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			if d := rulesOf(m).GetDiscriminator(); d != "" && f.Message() != nil && rules.GetTag() == "" &&
				f.Name() != "list" && f.Name() != "map" {
				t.Errorf("%s has no tag, though %s tells the cases apart", f.FullName(), d)
			}
			continue
		}
		member := f.JSONName()
		if rules.GetMember() != "" {
			member = rules.GetMember()
		}
		if members[member] {
			t.Errorf("%s: a second field for the member %q", m.Name(), member)
		}
		members[member] = true
		if rules.GetRaw() && (f.Kind() != protoreflect.StringKind || f.IsList() || f.IsMap()) {
			t.Errorf("%s: raw, but not one string", f.FullName())
		}
		if f.Kind() == protoreflect.EnumKind && f.HasOptionalKeyword() {
			t.Errorf("%s: an enum must not be optional", f.FullName())
		}
	}
}

func TestCommittedEnvelopeHasEveryKnownEvent(t *testing.T) {
	t.Parallel()
	data := (&cliv1.SessionEvent{}).ProtoReflect().Descriptor().Oneofs().ByName("data").Fields()
	tags := map[string]bool{}
	for i := range data.Len() {
		f := data.Get(i)
		if f.Number() == unrecognizedNumber {
			continue
		}
		if f.Number() < firstCase {
			t.Errorf("%s: number %d is kept for the envelope", f.FullName(), f.Number())
		}
		tags[fieldRulesOf(f).GetTag()] = true
	}
	// 166 in the schemas of the supported versions, and 24 that none of them lists.
	if len(tags) != 190 {
		t.Errorf("%d event types", len(tags))
	}
	for _, want := range append(slices.Clone(unlistedEvents), "session.start", "assistant.message",
		"permission.requested", "session.idle", "factory.run_updated") {
		if !tags[want] {
			t.Errorf("event %q has no case", want)
		}
	}
}

func TestCommittedSecretsAreRedacted(t *testing.T) {
	t.Parallel()
	messages := committedMessages(t)
	for _, want := range []string{
		"SessionConfig.github_token", "SessionServiceCreateRequest.github_token",
		"SessionServiceResumeRequest.github_token",
		"ProviderConfig.api_key", "ProviderConfig.bearer_token", "ProviderConfig.headers",
		"NamedProviderConfig.api_key", "NamedProviderConfig.bearer_token", "NamedProviderConfig.headers",
		"McpServerConfigStdio.env", "McpServerConfigHttp.headers", "SessionServiceSendRequest.request_headers",
		"SessionServiceResumeResponse.granted_environment_variables", "CallbackHostServiceEventRequest.payload_json",
		"InternalServerServiceConnectServerRequest.token", "CallbackProviderTokenServiceGetTokenResponse.token",
	} {
		message, field, _ := strings.Cut(want, ".")
		m := messages[message]
		if m == nil || m.Fields().ByName(protoreflect.Name(field)) == nil {
			t.Errorf("%s: no such field", want)
			continue
		}
		opts, _ := m.Fields().ByName(protoreflect.Name(field)).Options().(*descriptorpb.FieldOptions)
		if !opts.GetDebugRedact() {
			t.Errorf("%s is not marked debug_redact", want)
		}
	}
}

func TestCommittedMethodsHaveRules(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		service, rpc string
		want         *jsonv1.MethodRules
	}{
		{"SessionService", "Create", &jsonv1.MethodRules{Method: "session.create"}},
		{"SessionService", "Send", &jsonv1.MethodRules{Method: "session.send"}},
	} {
		m := cliv1.File_copilot_cli_v1_session_proto.Services().ByName(protoreflect.Name(tc.service)).Methods().ByName(protoreflect.Name(tc.rpc))
		if got := proto.GetExtension(m.Options(), jsonv1.E_Method); !proto.Equal(got.(*jsonv1.MethodRules), tc.want) {
			t.Errorf("%s.%s: got %v", tc.service, tc.rpc, got)
		}
	}
	event := cliv1.File_copilot_cli_v1_callback_session_proto.Services().ByName("CallbackSessionService").Methods().ByName("Event")
	if got, _ := proto.GetExtension(event.Options(), jsonv1.E_Method).(*jsonv1.MethodRules); !got.GetCallback() ||
		!got.GetNotification() || got.GetMethod() != "session.event" {
		t.Errorf("session.event: got %v", got)
	}
}

// TestCommittedIsMadeOfTheTables: after a change of the overlay, the words or the exceptions the files must be
// generated again. Generating fails for rows that match nothing.
func TestCommittedIsMadeOfTheTables(t *testing.T) {
	t.Parallel()
	ledger, err := ReadLedger("ledger.json")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := TablesSum()
	if err != nil {
		t.Fatal(err)
	}
	if ledger.Tables != sum {
		t.Errorf("the tables have changed since the .proto files were generated (%s, now %s): run make schema",
			ledger.Tables, sum)
	}
}

// TestCommittedOverlayIsNeeded: what the overlay defines is the parameters or the
// result of a method, or some message of the API has a field of it.
func TestCommittedOverlayIsNeeded(t *testing.T) {
	t.Parallel()
	needed := map[string]bool{eventUnion: true}
	for _, pkg := range []protoreflect.FullName{protoPackage, bridgev1.File_copilot_bridge_v1_session_proto.Package()} {
		protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(f protoreflect.FileDescriptor) bool {
			for i := range f.Messages().Len() {
				for j := range f.Messages().Get(i).Fields().Len() {
					noteType(f.Messages().Get(i).Fields().Get(j), needed)
				}
			}
			return true
		})
	}
	o, err := loadOverlay(overlayFiles)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range o.model.methods {
		for _, typ := range []*Type{x.Params, x.Result} {
			if typ != nil && typ.Kind == KindRef {
				needed[typ.Ref] = true
			}
		}
	}
	for _, r := range paramsOverrides {
		needed[r.To] = true
	}
	for _, name := range o.model.order {
		if !needed[name] && !o.included[name] {
			t.Errorf("overlay: nothing needs %q", name)
		}
	}
}

func noteType(f protoreflect.FieldDescriptor, into map[string]bool) {
	if f.IsMap() {
		f = f.MapValue()
	}
	if m := f.Message(); m != nil {
		into[string(m.Name())] = true
	}
	if e := f.Enum(); e != nil {
		into[string(e.Name())] = true
	}
}
