package translate_test

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/reference"
)

// BenchmarkPeers is what AppendWire and AppendJSON replace, on the same events:
//
//   - valid is encoding/json checking the text, without making anything of it: a
//     yardstick for the machine
//   - any is encoding/json decoding it without a type
//   - structs is encoding/json decoding it into structs, in two stages since only the
//     type says what the data is, as the official SDK for Go does
//   - reference is the slow transcoder that the fast one is tested against
//   - proto decodes and encodes the wire form, as a bridge with Go structs would have to
//   - protojson writes the wire form as protobuf's own JSON, which is not the CLI's
func BenchmarkPeers(b *testing.B) {
	for _, p := range payloads() {
		wire, err := eventTable(b).AppendWire(nil, p.event, translate.Tidy)
		if err != nil {
			b.Fatal(err)
		}
		for name, f := range map[string]func() error{
			"valid": func() error { _ = json.Valid(p.event); return nil },
			"any":   func() error { var v any; return json.Unmarshal(p.event, &v) },
			"structs": func() error {
				var e struct {
					Type, ID, Timestamp, ParentID string
					Ephemeral                     *bool
					Data                          json.RawMessage
				}
				if err := json.Unmarshal(p.event, &e); err != nil {
					return err
				}
				return json.Unmarshal(e.Data, newData(e.Type))
			},
			"reference": func() error {
				_, err := reference.Encode((*cliv1.SessionEvent)(nil).ProtoReflect().Descriptor(), p.event, false)
				return err
			},
			"proto": func() error {
				m := &cliv1.SessionEvent{}
				if err := proto.Unmarshal(wire, m); err != nil {
					return err
				}
				_, err := proto.Marshal(m)
				return err
			},
			"protojson": func() error {
				m := &cliv1.SessionEvent{}
				if err := proto.Unmarshal(wire, m); err != nil {
					return err
				}
				_, err := protojson.Marshal(m)
				return err
			},
		} {
			b.Run(name+"/"+p.name, func(b *testing.B) {
				b.ReportAllocs()
				defer perCPU(b)()
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// newData returns a struct for the data of an event.
func newData(eventType string) any {
	switch eventType {
	case "assistant.message_delta":
		return new(struct{ MessageID, DeltaContent string })
	case "tool.execution_complete":
		return new(struct {
			ToolCallID, Model, InteractionID string
			Success                          bool
			Result                           struct{ Content, DetailedContent string }
			ToolTelemetry                    map[string]any
		})
	case "assistant.message":
		return new(struct {
			MessageID, Content, InteractionID string
			ToolRequests                      []struct {
				ToolCallID, Name, Type string
				Arguments              map[string]any
			}
		})
	}
	return new(map[string]any)
}
