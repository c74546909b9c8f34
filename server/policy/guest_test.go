package policy

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// sharing has the tenants of the tests of guests: with and without a sandbox, each with its own list.
// "private_urls" are not resolved.
const sharing = `
tenants:
  guest-open: {members: [], private_urls: ["https://guest.example", "https://both.example"]}
  guest-boxed: {members: [], sandbox: [confine], private_urls: ["https://guest.example", "https://both.example"]}
  owner-open: {members: [], private_urls: ["https://owner.example", "https://both.example"]}
  owner-boxed: {members: [], sandbox: [confine], private_urls: ["https://owner.example", "https://both.example"]}
`

// pairs are who shares a session with whom.
func pairs(t *testing.T, f func(t *testing.T, owner, guest string)) {
	t.Helper()
	for _, owner := range []string{caller.HostTenant, "owner-open", "owner-boxed"} {
		for _, guest := range []string{caller.HostTenant, "guest-open", "guest-boxed"} {
			if owner != guest {
				t.Run(fmt.Sprintf("owner=%s,guest=%s", owner, guest), func(t *testing.T) {
					t.Parallel()
					f(t, owner, guest)
				})
			}
		}
	}
}

// with returns a message that has just the field, with a text where it takes one.
func with(t *testing.T, name protoreflect.FullName, text string) protoreflect.Message {
	t.Helper()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	f := d.(protoreflect.FieldDescriptor)
	m := dynamicpb.NewMessage(f.ContainingMessage())
	one := func(f protoreflect.FieldDescriptor, fresh func() protoreflect.Value) protoreflect.Value {
		switch f.Kind() {
		case protoreflect.StringKind:
			return protoreflect.ValueOfString(text)
		case protoreflect.BytesKind:
			return protoreflect.ValueOfBytes([]byte(text))
		case protoreflect.BoolKind:
			return protoreflect.ValueOfBool(true)
		case protoreflect.EnumKind:
			return protoreflect.ValueOfEnum(1)
		case protoreflect.DoubleKind:
			return protoreflect.ValueOfFloat64(1)
		case protoreflect.Int32Kind:
			return protoreflect.ValueOfInt32(1)
		case protoreflect.Int64Kind:
			return protoreflect.ValueOfInt64(1)
		case protoreflect.MessageKind:
			return fresh()
		}
		t.Fatalf("%s is a %v: say here how it is set", name, f.Kind())
		return protoreflect.Value{}
	}
	switch {
	case f.IsMap():
		entries := m.Mutable(f).Map()
		entries.Set(one(f.MapKey(), nil).MapKey(), one(f.MapValue(), entries.NewValue))
	case f.IsList():
		list := m.Mutable(f).List()
		list.Append(one(f, list.NewElement))
	default:
		m.Set(f, one(f, func() protoreflect.Value { return m.NewField(f) }))
	}
	return m
}

// Each row of fields.txt, for each pair of an owner and a guest: a guest's rights are the smaller
// of both, and what names the host is nothing that a session is shared for. A new row is tried as
// soon as it is there.
func TestGuestsAreJudgedFieldByField(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, owner, guest string) {
		p := mustPolicy(t, sharing)
		tried := map[fieldClass]int{}
		for name, class := range fieldClasses {
			tried[class]++
			check := func(text string, allowed bool) {
				t.Helper()
				err := p.CheckGuest(t.Context(), guest, owner, with(t, name, text))
				f, _ := err.(*fault.Error)
				if allowed != (err == nil) || f != nil && !strings.HasPrefix(f.Field, string(name.Name())) {
					t.Errorf("%s (%s) with %q: %v, want it allowed: %v", name, class, text, err, allowed)
				}
			}
			switch class {
			case fieldHost:
				check("x", false)
			case fieldPlain:
				check("x", true)
			case fieldURL:
				byOwner := owner == caller.HostTenant || owner == "owner-boxed"
				byGuest := guest == caller.HostTenant
				check("https://both.example/x", true)
				check("https://owner.example/x", byGuest)
				check("https://guest.example/x", byOwner)
				check("https://nobody.example/x", byOwner && byGuest)
			}
		}
		for _, class := range []fieldClass{fieldHost, fieldPlain, fieldURL} {
			if tried[class] == 0 {
				t.Errorf("no row of the class %q was tried", class)
			}
		}
	})
}

// Guests may not send members that the contract does not declare, unless they have no content.
func TestGuestsAndWhatIsNotDeclared(t *testing.T) {
	t.Parallel()
	attach := func(a *cliv1.Attachment) proto.Message {
		return &bridgev1.SendRequest{Prompt: &bridgev1.Prompt{Text: "x", Attachments: []*cliv1.Attachment{a}}}
	}
	pairs(t, func(t *testing.T, owner, guest string) {
		p := mustPolicy(t, sharing)
		for name, tc := range map[string]struct {
			request proto.Message
			allowed bool
		}{
			"plain": {&bridgev1.SendRequest{Prompt: &bridgev1.Prompt{Text: "x"}}, true},
			"blob": {attach(&cliv1.Attachment{Variant: &cliv1.Attachment_Blob{Blob: &cliv1.AttachmentBlob{}}}),
				true},
			"file":    {attach(&cliv1.Attachment{Variant: &cliv1.Attachment_File{File: &cliv1.AttachmentFile{Path: "/etc/passwd"}}}), false},
			"extra":   {&bridgev1.SendRequest{Prompt: &bridgev1.Prompt{JsonExtra: `{"attachments":[]}`}}, false},
			"nested":  {attach(&cliv1.Attachment{Variant: &cliv1.Attachment_Blob{Blob: &cliv1.AttachmentBlob{JsonExtra: `{"path":"/x"}`}}}), false},
			"nothing": {&bridgev1.SendRequest{Prompt: &bridgev1.Prompt{JsonExtra: `{"attachments":null}`}}, true},
		} {
			if err := p.CheckGuest(t.Context(), guest, owner, tc.request.ProtoReflect()); tc.allowed != (err == nil) {
				t.Errorf("%s: %v, want it allowed: %v", name, err, tc.allowed)
			}
		}
	})
}

// Where one of the two tenants is not in the policy any more, nothing is allowed.
func TestGuestsOfNobody(t *testing.T) {
	t.Parallel()
	p := mustPolicy(t, sharing)
	for _, pair := range [][2]string{{"gone", "owner-open"}, {"guest-open", "gone"}} {
		if err := p.CheckGuest(t.Context(), pair[0], pair[1], (&bridgev1.SendRequest{}).ProtoReflect()); err == nil {
			t.Errorf("%v: an empty request is allowed", pair)
		}
	}
}

// A frame of a call that may still become a guest's is judged by what any owner could refuse.
func TestUnplacedFrames(t *testing.T) {
	t.Parallel()
	for name, class := range fieldClasses {
		if err := CheckUnplaced(t.Context(),
			with(t, name, "https://both.example")); (err == nil) != (class == fieldPlain) {
			t.Errorf("%s (%s): %v", name, class, err)
		}
	}
}
