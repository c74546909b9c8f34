package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// The hand-written field numbers equal the descriptors'.
func TestFieldNumbers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		m      proto.Message
		field  protoreflect.Name
		number protowire.Number
		kind   protoreflect.Kind
		list   bool
	}{
		{&bridgev1.EventBatch{}, "events", fieldBatchEvents, protoreflect.MessageKind, true},
		{&bridgev1.ListEventsResponse{}, "events", fieldBatchEvents, protoreflect.MessageKind, true},
		{&bridgev1.Event{}, "position", fieldEventPosition, protoreflect.MessageKind, false},
		{&bridgev1.Event{}, "event", fieldEventEvent, protoreflect.MessageKind, false},
		{&bridgev1.Event{}, "original_json", fieldEventOriginal, protoreflect.StringKind, false},
		{&bridgev1.Event{}, "cause", fieldEventCause, protoreflect.EnumKind, false},
		{&bridgev1.Event{}, "truncated", fieldEventCut, protoreflect.BoolKind, false},
		{&bridgev1.Position{}, "epoch", fieldEpoch, protoreflect.Uint64Kind, false},
		{&bridgev1.Position{}, "seq", fieldSeq, protoreflect.Uint64Kind, false},
		{&cliv1.SessionEvent{}, "event_type", fieldType, protoreflect.StringKind, false},
		{&cliv1.SessionEvent{}, "unrecognized", fieldUnrecognized, protoreflect.StringKind, false},
	} {
		d := test.m.ProtoReflect().Descriptor()
		fd := d.Fields().ByName(test.field)
		if fd == nil || fd.Number() != test.number || fd.Kind() != test.kind || fd.IsList() != test.list {
			t.Errorf("%s.%s is %v, not number %d of kind %v", d.Name(), test.field, fd, test.number, test.kind)
		}
	}
}

const said = `{"type":"assistant.message","id":"0f8fad5b-d9cb-469f-a165-70867728950e","timestamp":"2026-01-02T03:04:05.678Z",` +
	`"parentId":null,"data":{"messageId":"m1","content":"hé\n","toolRequests":[],"somethingNew":{"b":1,"a":[]}}}`

// The encoder returns the same bytes as the marshalled message.
func TestEventEncoding(t *testing.T) {
	t.Parallel()
	c := New(slog.New(slog.DiscardHandler))
	for name, r := range map[string]*journal.Record{
		"an event":       {Type: "assistant.message", JSON: []byte(said)},
		"of the bridge":  {Type: "assistant.message", JSON: []byte(said), Bridge: true},
		"unknown type":   {Type: "something.new", JSON: []byte(`{"type":"something.new","data":{"a":1}}`)},
		"too long":       {Type: "assistant.message", JSON: []byte(strings.Replace(said, "hé", strings.Repeat("x", 2<<20), 1))},
		"wrongly typed":  {Type: "assistant.message", JSON: []byte(`{"type":"assistant.message","data":{"content":17}}`)},
		"data of a kind": {Type: "assistant.message", JSON: []byte(`{"type":"assistant.message","data":"text"}`)},
	} {
		r.Pos = journal.Position{Epoch: 1700000000000, Seq: 300}
		for form := range journal.ExactOriginal + 1 {
			t.Run(fmt.Sprint(name, form), func(t *testing.T) {
				t.Parallel()
				checkEncoding(t, c, r, form)
			})
		}
	}
}

func checkEncoding(t *testing.T, c *Codec, r *journal.Record, form journal.Form) {
	t.Helper()
	wire := c.Event(r, form)
	if len(wire) > 1<<20 {
		t.Errorf("%d bytes", len(wire))
	}
	var got bridgev1.EventBatch
	if err := proto.Unmarshal(wire, &got); err != nil || len(got.GetEvents()) != 1 {
		t.Fatalf("%v: %v", err, &got)
	}
	event := got.GetEvents()[0]
	original := form == journal.TidyOriginal || form == journal.ExactOriginal
	exact := form == journal.Exact || form == journal.ExactOriginal
	if p := event.GetPosition(); p.GetEpoch() != r.Pos.Epoch || p.GetSeq() != r.Pos.Seq {
		t.Errorf("position is %v", p)
	}
	if (event.GetCause() == bridgev1.EventCause_EVENT_CAUSE_BRIDGE) != r.Bridge {
		t.Errorf("cause is %v", event.GetCause())
	}
	if event.GetEvent().GetEventType() != r.Type {
		t.Errorf("type is %q", event.GetEvent().GetEventType())
	}
	if event.GetTruncated() != (len(r.JSON) > journal.MaxEventBytes) || (event.OriginalJson != nil) != original {
		t.Errorf("truncated %v, original %v", event.GetTruncated(), event.OriginalJson != nil)
	}
	if original && !event.GetTruncated() && event.GetOriginalJson() != string(r.JSON) {
		t.Errorf("original is %s", event.GetOriginalJson())
	}
	if !json.Valid([]byte(event.GetOriginalJson())) && original {
		t.Error("original is not JSON")
	}
	// The typed part is the table's; the frame around it is what Marshal makes of it.
	marshalled, err := proto.MarshalOptions{Deterministic: true}.Marshal(&got)
	if err != nil {
		t.Fatal(err)
	}
	var again bridgev1.EventBatch
	if err := proto.Unmarshal(marshalled, &again); err != nil || !proto.Equal(&got, &again) {
		t.Errorf("it is not what Marshal gives: %v", err)
	}
	if typed, err := proto.Marshal(event.GetEvent()); err != nil || len(marshalled) != len(wire) {
		t.Errorf("%d bytes, Marshal gives %d (%d typed): %v", len(wire), len(marshalled), len(typed), err)
	}
	if exact && !event.GetTruncated() {
		back, err := c.events().AppendJSON(nil, must(proto.Marshal(event.GetEvent())), translate.JSONOptions{})
		if err != nil || !sameJSON(t, back, r.JSON) {
			t.Errorf("back: %s, %v", back, err)
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}

func TestToJSON(t *testing.T) {
	t.Parallel()
	c := New(slog.New(slog.DiscardHandler))
	for name, test := range map[string]struct {
		config *cliv1.SessionConfig
		want   string
		reason fault.Reason
		field  string
	}{
		"nothing":            {&cliv1.SessionConfig{}, `{}`, 0, ""},
		"a member":           {&cliv1.SessionConfig{Model: proto.String("m")}, `{"model":"m"}`, 0, ""},
		"something more":     {&cliv1.SessionConfig{JsonExtra: `{"newMember":[1]}`}, `{"newMember":[1]}`, 0, ""},
		"a declared member":  {&cliv1.SessionConfig{JsonExtra: `{"model":"m"}`}, "", fault.JSONExtraForbidden, "config.json_extra"},
		"a forbidden member": {&cliv1.SessionConfig{JsonExtra: `{"sessionId":"x"}`}, "", fault.JSONExtraForbidden, "config.json_extra"},
		"not JSON":           {&cliv1.SessionConfig{JsonExtra: `{`}, "", fault.InvalidField, "config.json_extra"},
	} {
		got, err := c.ToJSON(test.config, "config", "sessionId")
		if string(got) != test.want || fault.ReasonOf(err) != test.reason {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		if f, ok := fields.AsFault(err); ok && f.Field != test.field {
			t.Errorf("%s: field %q, want %q", name, f.Field, test.field)
		}
	}
}

const deltaEvent = `{"type":"assistant.message_delta","data":{"messageId":"m1","deltaContent":" the next"},"ephemeral":true,` +
	`"id":"0b0f1f9a-3b0c-4a55-9d57-3f6f2f3c9a11","timestamp":"2026-01-02T03:04:05.678Z","parentId":"5a3c2f68-7b43-4be2-8c2c-6a9f6d0f7a20"}`

// AppendEvent appends exactly the bytes of the shared form, after any other bytes.
func TestAppendEvent(t *testing.T) {
	t.Parallel()
	c := New(slog.New(slog.DiscardHandler))
	long := strings.Replace(deltaEvent, " the next", strings.Repeat(`a line\n`, 5000), 1)
	for name, text := range map[string]string{"delta": deltaEvent, "long": long, "no event": `[1]`, "no JSON": `{"type":`} {
		for form := range journal.ExactOriginal + 1 {
			for _, seq := range []uint64{1, 1 << 40} {
				r := &journal.Record{Pos: journal.Position{Epoch: 1700000000000, Seq: seq}, Type: "t", JSON: []byte(text), Bridge: seq > 1}
				want := c.Event(r, form)
				for _, room := range []int{0, 1 << 17} {
					before := append(make([]byte, 0, room), "before"...)
					if got := c.AppendEvent(before, r, form); !bytes.Equal(got, append([]byte("before"), want...)) {
						t.Errorf("%s in form %d, room for %d: %d bytes, want %d after those before", name, form, room, len(got), len(want))
					}
				}
			}
		}
	}
}

// A codec is made without the table of events, whose tens of thousands of allocations the start of a server would wait
// for. The table can be made.
func TestNewLeavesTheTableOut(t *testing.T) { //nolint:paralleltest // it counts allocations
	var c *Codec
	if n := testing.AllocsPerRun(1, func() { c = New(slog.New(slog.DiscardHandler)) }); n > 1000 {
		t.Errorf("New makes %v allocations", n)
	}
	if n := testing.AllocsPerRun(1, c.Prepare); n != 0 { // the second call
		t.Errorf("Prepare makes %v allocations again", n)
	}
	if c.events() == nil {
		t.Error("there is no table of events")
	}
}
