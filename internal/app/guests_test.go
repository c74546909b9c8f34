package app

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// mark is what guests put where a path or a command belongs.
const mark = "/marked-by-a-guest"

// hostFields are the rows of fields.txt that name the host.
func hostFields(t *testing.T) map[protoreflect.FullName]bool {
	t.Helper()
	text, err := os.ReadFile("../../server/policy/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[protoreflect.FullName]bool{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) != 2 || words[1] != "host" {
			continue
		}
		name := "copilot.cli.v1." + words[0]
		if strings.HasPrefix(words[0], "bridge.v1.") {
			name = "copilot." + words[0]
		}
		out[protoreflect.FullName(name)] = true
	}
	if len(out) < 100 {
		t.Fatalf("only %d fields", len(out))
	}
	return out
}

// marker puts marked fields into requests.
type marker struct {
	fields map[protoreflect.FullName]bool
	// found are the paths to the fields of a message type; nil while they are looked for.
	found map[protoreflect.FullName][][]protoreflect.FieldDescriptor
}

// paths are the shortest ways from a message to each of the fields in it.
func (k *marker) paths(d protoreflect.MessageDescriptor) [][]protoreflect.FieldDescriptor {
	if out, known := k.found[d.FullName()]; known {
		return out
	}
	type place struct {
		d    protoreflect.MessageDescriptor
		path []protoreflect.FieldDescriptor
	}
	var out [][]protoreflect.FieldDescriptor
	seen := map[protoreflect.FullName]bool{d.FullName(): true}
	for queue := []place{{d, nil}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for i := range at.d.Fields().Len() {
			f := at.d.Fields().Get(i)
			path := append(append([]protoreflect.FieldDescriptor{}, at.path...), f)
			if k.fields[f.FullName()] {
				out = append(out, path)
				continue
			}
			m := f.Message()
			if m != nil && f.IsMap() {
				m = f.MapValue().Message()
			}
			if m != nil && !seen[m.FullName()] && strings.HasPrefix(string(m.FullName()), "copilot.") {
				seen[m.FullName()] = true
				queue = append(queue, place{m, path})
			}
		}
	}
	k.found[d.FullName()] = out
	return out
}

// put sets the field at the end of a path.
func put(m protoreflect.Message, path []protoreflect.FieldDescriptor) {
	if m.Descriptor().FullName() == "copilot.cli.v1.AttachmentSelection" { // what it needs besides
		for _, name := range []protoreflect.Name{"selection", "text", "display_name"} {
			switch f := m.Descriptor().Fields().ByName(name); f.Kind() {
			case protoreflect.StringKind:
				m.Set(f, protoreflect.ValueOfString("x"))
			case protoreflect.MessageKind:
				details := m.Mutable(f).Message()
				for i := range details.Descriptor().Fields().Len() {
					if f := details.Descriptor().Fields().Get(i); f.Kind() == protoreflect.MessageKind {
						details.Mutable(f)
					}
				}
			}
		}
	}
	f := path[0]
	next := func(v protoreflect.Value) protoreflect.Value {
		if len(path) > 1 {
			put(v.Message(), path[1:])
		}
		return v
	}
	scalar := func(f protoreflect.FieldDescriptor) protoreflect.Value {
		switch f.Kind() {
		case protoreflect.StringKind:
			if strings.HasSuffix(string(f.Name()), "_json") {
				return protoreflect.ValueOfString(`"` + mark + `"`)
			}
			return protoreflect.ValueOfString(mark)
		case protoreflect.BytesKind:
			return protoreflect.ValueOfBytes([]byte(mark))
		case protoreflect.BoolKind:
			return protoreflect.ValueOfBool(true)
		case protoreflect.EnumKind:
			return protoreflect.ValueOfEnum(1)
		}
		return protoreflect.ValueOf(f.Default().Interface())
	}
	switch {
	case f.IsMap() && f.MapValue().Message() != nil:
		entries := m.Mutable(f).Map()
		entries.Set(protoreflect.ValueOfString("x").MapKey(), next(entries.NewValue()))
	case f.IsMap():
		m.Mutable(f).Map().Set(protoreflect.ValueOfString("x").MapKey(), scalar(f.MapValue()))
	case f.IsList() && f.Message() != nil:
		list := m.Mutable(f).List()
		list.Append(next(list.NewElement()))
	case f.IsList():
		m.Mutable(f).List().Append(scalar(f))
	case f.Message() != nil:
		next(m.Mutable(f))
	default:
		m.Set(f, scalar(f))
	}
}

// about is a request about one session; false if it can be about none.
func about(d protoreflect.MessageDescriptor, id string) (*dynamicpb.Message, bool) {
	m := dynamicpb.NewMessage(d)
	switch d.FullName() {
	case "copilot.bridge.v1.AttachRequest":
		start := &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
			Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: id},
		}}}
		wire, _ := proto.Marshal(start)
		return m, proto.Unmarshal(wire, m) == nil
	case "copilot.bridge.v1.SendStreamRequest":
		m.Mutable(d.Fields().ByName("request")).Message().Set(
			d.Fields().ByName("request").Message().Fields().ByName("session_id"), protoreflect.ValueOfString(id))
		return m, true
	}
	f := d.Fields().ByName("session_id")
	if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() {
		return nil, false
	}
	m.Set(f, protoreflect.ValueOfString(id))
	return m, true
}

// names reports whether a request is still about the session.
func names(m protoreflect.Message, id string) bool {
	text := fmt.Sprint(m.Interface())
	return strings.Contains(text, `session_id:"`+id+`"`) && !strings.Contains(text, "resume:{") &&
		!strings.Contains(text, "create:{")
}

// guestsPolicy lets tenants with and without a sandbox share with each other.
const guestsPolicy = `
version: 1
identity: {tokens: tokens.txt}
tenants:
  open-owner: {members: [{token: open-owner, role: owner}]}
  boxed-owner: {members: [{token: boxed-owner, role: owner}], sandbox: [confine]}
  open-guest: {members: [{token: open-guest, role: admin}]}
  boxed-guest: {members: [{token: boxed-guest, role: admin}], sandbox: [confine]}
  host: {members: [{token: host, role: admin}, {token: operator, role: admin}]}
`

// sharedWith has an owner share a session with a guest, who accepts, and returns the session's
// name for the guest.
func (ts *tenants) sharedWith(t *testing.T, owner, guest string) (name string) {
	t.Helper()
	id := "s-" + owner + "-" + guest
	sessionOf(t, ts.as(owner), id)
	offer(t, ts.as(owner), id, guest, toParticipate)
	accept(t, ts.as(guest), owner+"/"+id)
	return owner + "/" + id
}

// guests calls f for each pair of an owner and a guest, with a session that they share.
func guests(t *testing.T, f func(t *testing.T, ts *tenants, owner, guest, name string)) {
	t.Helper()
	for _, owner := range []string{"open-owner", "boxed-owner", "host"} {
		for _, guest := range []string{"open-guest", "boxed-guest", "host"} {
			if owner == guest {
				continue
			}
			t.Run("owner="+owner+",guest="+guest, func(t *testing.T) {
				t.Parallel()
				ts := startTenants(t, func(c *Config) {
					c.Internal, c.Raw = true, true
					c.Policy = writePolicy(t, guestsPolicy, "open-owner", "boxed-owner", "open-guest", "boxed-guest",
						"host", "operator")
				})
				f(t, ts, owner, guest, ts.sharedWith(t, owner, guest))
			})
		}
	}
}

// cliOf is the fake CLI of a tenant by its public name.
func (ts *tenants) cliOf(tenant string) *fakecli.CLI {
	if tenant == caller.HostName {
		return ts.cli(caller.HostTenant)
	}
	return ts.cli(tenant)
}

// A guest names nothing of the owner's machine, in any call or field, whichever of the two has a sandbox. The table of
// fields lists the fields that name it, and the test tries every rpc that takes such a field about a session.
func TestGuestsNameNothingOfTheHost(t *testing.T) {
	t.Parallel()
	fields := hostFields(t)
	guests(t, func(t *testing.T, ts *tenants, owner, guest, name string) {
		k := &marker{fields: fields, found: map[protoreflect.FullName][][]protoreflect.FieldDescriptor{}}
		conn, tried := ts.as(guest), map[string]int{}
		for _, m := range ts.rpcs() {
			if policy.Class(policy.FullMethod(m)) > caller.Drive {
				continue
			}
			for _, exact := range []bool{false, true} {
				for _, path := range k.paths(m.Input()) {
					request, ok := about(m.Input(), name)
					if !ok {
						continue
					}
					if put(request, path); !names(request, name) {
						continue // another session's, or a later frame's
					}
					ctx := t.Context()
					if exact {
						ctx = metadata.AppendToOutgoingContext(ctx, "copilot-fidelity", "exact")
					}
					tried[string(m.FullName().Parent())]++
					if got, st := call(ctx, conn, m, request); st.Code() != codes.PermissionDenied {
						t.Errorf("%s with %v: %v, %s", m.FullName(), path[len(path)-1].FullName(), st, got)
					}
				}
			}
		}
		for _, service := range []string{"copilot.bridge.v1.SessionService", "copilot.cli.v1.SessionService"} {
			if tried[service] == 0 {
				t.Errorf("nothing of %s was tried, of %v", service, tried)
			}
		}
		if log := logOf(ts.cliOf(owner)); strings.Contains(log, mark) {
			t.Errorf("the owner's CLI has heard of it: %s", log)
		}
	})
}

// Nor does a participant of another tenant, in the frames after its first.
func TestGuestsNameNothingOfTheHostInLaterFrames(t *testing.T) {
	t.Parallel()
	fields := hostFields(t)
	d := (&bridgev1.AttachRequest{}).ProtoReflect().Descriptor()
	guests(t, func(t *testing.T, ts *tenants, owner, guest, name string) {
		k := &marker{fields: fields, found: map[protoreflect.FullName][][]protoreflect.FieldDescriptor{}}
		conn, tried := ts.as(guest), 0
		for _, path := range k.paths(d) {
			if path[0].Name() == "start" {
				continue
			}
			frame := dynamicpb.NewMessage(d)
			put(frame, path)
			request := &bridgev1.AttachRequest{}
			wire, err := proto.Marshal(frame)
			if err == nil {
				err = proto.Unmarshal(wire, request)
			}
			if err != nil {
				t.Fatal(err)
			}
			tried++
			if err := afterJoining(t, conn, name, request); status.Code(err) != codes.PermissionDenied {
				t.Errorf("%v: %v", path[len(path)-1].FullName(), err)
			}
		}
		if tried < 3 {
			t.Errorf("only %d frames were tried", tried)
		}
		if log := logOf(ts.cliOf(owner)); strings.Contains(log, mark) {
			t.Errorf("the owner's CLI has heard of it: %s", log)
		}
	})
}

// afterJoining joins a session, sends a frame, and returns how the stream ends.
func afterJoining(t *testing.T, conn *grpc.ClientConn, name string, frame *bridgev1.AttachRequest) error {
	t.Helper()
	stream, err := bridgev1.NewCallbackServiceClient(conn).Attach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: name},
	}}})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatalf("joining %s: %v", name, err)
	}
	if err := stream.Send(frame); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	return drained(stream)
}

// A tenant keeps all rights in its own sessions, guest of others or not; and a guest may send prompts, with its own
// tools and handlers.
func TestGuestsMayTalk(t *testing.T) {
	t.Parallel()
	blob := &cliv1.Attachment{Variant: &cliv1.Attachment_Blob{Blob: &cliv1.AttachmentBlob{Data: []byte("x"),
		MimeType: "text/plain"}}}
	file := &cliv1.Attachment{Variant: &cliv1.Attachment_File{File: &cliv1.AttachmentFile{Path: mark,
		DisplayName: "x"}}}
	guests(t, func(t *testing.T, ts *tenants, _, guest, name string) {
		send := func(id string, a *cliv1.Attachment) error {
			_, err := bridgev1.NewSessionServiceClient(ts.as(guest)).SendAndWait(t.Context(),
				&bridgev1.SendAndWaitRequest{
					SessionId: id, Prompt: &bridgev1.Prompt{Text: "hi", Attachments: []*cliv1.Attachment{a}},
				})
			return err
		}
		wantCode(t, "a blob to the shared session", send(name, blob), codes.OK)
		wantCode(t, "a file to the shared session", send(name, file), codes.PermissionDenied)
		_, err := bridgev1.NewRawServiceClient(ts.as(guest)).Invoke(t.Context(), &bridgev1.InvokeRequest{
			Method: "session.send", SessionId: name,
			ParamsJson: `{"prompt":"hi","attachments":[{"type":"file","path":"` + mark + `"}]}`,
		})
		wantCode(t, "RawService about the shared session", err, codes.PermissionDenied)
		sessionOf(t, ts.as(guest), "own")
		want := codes.OK
		if guest == "open-guest" {
			want = codes.PermissionDenied
		}
		wantCode(t, "a file to the guest's own session", send("own", file), want)
	})
}
