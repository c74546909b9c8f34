package surface

import (
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A client that was made of the protos of the oldest supported CLI alone talks to this
// server and to the newest CLI: what it says is understood, what it knows it finds typed,
// and of what it does not know it still has the type's name, and no error.
func TestOldClient(t *testing.T) {
	t.Parallel()
	old := newOldProtos(t) // first: it tells what is missing
	r := harness.NewFixture(t, harness.Echo)
	if r.Before("1.0.102") {
		t.Skipf("the CLI that runs, %s, is not newer than the client", r.Host.CLI)
	}
	c := newOldClient(t, r, old)

	// The request is written by names and read by the old descriptors.
	request := c.message("copilot.bridge.v1.RunRequest")
	text, err := protojson.Marshal(&bridgev1.RunRequest{
		Session: &bridgev1.RunRequest_Create{Create: &bridgev1.CreateSessionRequest{Config: r.Options().Config}},
		Prompt:  &bridgev1.Prompt{Text: "hello from the past"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(text, request); err != nil {
		t.Fatalf("the old protos do not know what a session needs: %v", err)
	}
	seen := c.run(request)
	for _, want := range []string{"user.message", "assistant.message", "session.idle"} {
		if seen.typed[want] == 0 {
			t.Errorf("%q did not come typed: %v", want, seen.typed)
		}
	}
	if len(seen.nameless) > 0 {
		t.Errorf("events without a type: %v", seen.nameless)
	}
	if len(seen.named) == 0 {
		t.Error("nothing newer than the client came: this shows nothing")
	}
	if got := seen.outcome; !strings.Contains(got, "hello from the past") {
		t.Errorf("outcome: got %q", got)
	}
	t.Logf("typed: %v; known by name only: %v", seen.typed, seen.named)

	err = c.conn.Invoke(r.Ctx, "/copilot.bridge.v1.SessionService/GetSession",
		c.of("copilot.bridge.v1.GetSessionRequest", `{"sessionId": "nobody"}`),
		c.message("copilot.bridge.v1.GetSessionResponse"))
	if status.Code(err) != codes.NotFound {
		t.Errorf("an unknown session: got %v", err)
	}
}

// oldClient calls the server by old descriptors.
type oldClient struct {
	t     *testing.T
	rig   *harness.Fixture
	conn  *grpc.ClientConn
	types *dynamicpb.Types
}

func newOldClient(t *testing.T, r *harness.Fixture, old *dynamicpb.Types) *oldClient {
	t.Helper()
	conn, err := grpc.NewClient(r.Host.Target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &oldClient{t: t, rig: r, conn: conn, types: old}
}

// message is a new message of the old descriptors.
func (c *oldClient) message(name protoreflect.FullName) *dynamicpb.Message {
	c.t.Helper()
	typ, err := c.types.FindMessageByName(name)
	if err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	return dynamicpb.NewMessage(typ.Descriptor())
}

// of is a message of the old descriptors, from JSON.
func (c *oldClient) of(name protoreflect.FullName, text string) *dynamicpb.Message {
	c.t.Helper()
	m := c.message(name)
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	return m
}

// pastStream is what came on a stream, as the old descriptors read it.
type pastStream struct {
	typed, named map[string]int
	nameless     []string
	outcome      string
}

// run calls SessionService.Run and reads all of it.
func (c *oldClient) run(request proto.Message) *pastStream {
	c.t.Helper()
	s := &pastStream{typed: map[string]int{}, named: map[string]int{}}
	stream, err := c.conn.NewStream(c.rig.Ctx, &grpc.StreamDesc{ServerStreams: true},
		"/copilot.bridge.v1.SessionService/Run")
	if err == nil {
		err = errors.Join(stream.SendMsg(request), stream.CloseSend())
	}
	if err != nil {
		c.t.Fatal(err)
	}
	for {
		frame := c.message("copilot.bridge.v1.RunResponse")
		switch err := stream.RecvMsg(frame); {
		case errors.Is(err, io.EOF):
			return s
		case err != nil:
			c.t.Fatal(err)
		}
		s.take(frame)
	}
}

// take notes what is in a frame.
func (s *pastStream) take(frame protoreflect.Message) {
	if text := child(child(frame, "outcome"), "text"); text.IsValid() {
		s.outcome = text.String()
	}
	events := child(child(child(frame, "stream"), "events"), "events")
	if !events.IsValid() {
		return
	}
	for i := range events.List().Len() {
		event := child(events.List().Get(i).Message(), "event").Message()
		typ := ""
		if v := child(event, "event_type"); v.IsValid() {
			typ = v.String()
		}
		data := event.WhichOneof(event.Descriptor().Oneofs().ByName("data"))
		switch {
		case typ == "":
			s.nameless = append(s.nameless, protojson.Format(event.Interface()))
		case data == nil || data.Number() == 1001:
			s.named[typ]++
		default:
			s.typed[typ]++
		}
	}
}

// child is a field's value; not valid if there is none. Of a value that is not valid there
// is none either.
func child(of any, name protoreflect.Name) protoreflect.Value {
	m, ok := of.(protoreflect.Message)
	if v, is := of.(protoreflect.Value); is && v.IsValid() {
		m, ok = v.Message(), true
	}
	if !ok {
		return protoreflect.Value{}
	}
	f := m.Descriptor().Fields().ByName(name)
	if f == nil || f.Message() != nil && !f.IsList() && !m.Has(f) {
		return protoreflect.Value{}
	}
	return m.Get(f)
}
