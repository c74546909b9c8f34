package bridge

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const deltaEvent = `{"type":"assistant.message_delta","data":{"messageId":"m1","deltaContent":" the next"},"ephemeral":true,` +
	`"id":"0b0f1f9a-3b0c-4a55-9d57-3f6f2f3c9a11","timestamp":"2026-01-02T03:04:05.678Z","parentId":"5a3c2f68-7b43-4be2-8c2c-6a9f6d0f7a20"}`

const deltaFrame = `{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"s1","event":` + deltaEvent + `}}`

// TestEvent decodes what event writes by hand.
func TestEvent(t *testing.T) {
	t.Parallel()
	large := `{"type":"assistant.message","data":{"messageId":"m1","content":"` + strings.Repeat("x", journal.MaxEventBytes) +
		`"},"id":"0b0f1f9a-3b0c-4a55-9d57-3f6f2f3c9a11","timestamp":"2026-01-02T03:04:05.678Z","parentId":null}`
	for name, test := range map[string]struct {
		json   string
		form   journal.Form
		pos    journal.Position
		bridge bool
		cut    bool
	}{
		"tidy":          {json: deltaEvent, form: journal.Tidy, pos: journal.Position{Epoch: 1, Seq: 1}},
		"exact":         {json: deltaEvent, form: journal.Exact, pos: journal.Position{Epoch: 1 << 41, Seq: 1 << 20}},
		"with original": {json: deltaEvent, form: journal.TidyOriginal, pos: journal.Position{Epoch: 1<<64 - 1, Seq: 1<<64 - 1}},
		"by the bridge": {json: deltaEvent, form: journal.Tidy, bridge: true, pos: journal.Position{Epoch: 1, Seq: 2}},
		"not to be typed": {
			json: `{"type":"assistant.message_delta","data":7,"id":"x"}`, form: journal.Tidy, pos: journal.Position{Epoch: 1, Seq: 3},
		},
		"too large": {json: large, form: journal.ExactOriginal, cut: true, pos: journal.Position{Epoch: 9, Seq: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := newCodec()
			if err != nil {
				t.Fatal(err)
			}
			rec, err := session.ParseEvent([]byte(test.json))
			if err != nil {
				t.Fatal(err)
			}
			rec.Pos, rec.Bridge = test.pos, test.bridge
			// Twice: the second time in a buffer that has been used.
			for range 2 {
				batch := &bridgev1.EventBatch{}
				if err := proto.Unmarshal(c.event(rec, test.form), batch); err != nil {
					t.Fatal(err)
				}
				if len(batch.GetEvents()) != 1 {
					t.Fatalf("%d events, want 1", len(batch.GetEvents()))
				}
				e := batch.GetEvents()[0]
				if got := (journal.Position{Epoch: e.GetPosition().GetEpoch(), Seq: e.GetPosition().GetSeq()}); got != test.pos {
					t.Errorf("position %v, want %v", got, test.pos)
				}
				if got := e.GetEvent().GetType(); got != rec.Type {
					t.Errorf("type %q, want %q", got, rec.Type)
				}
				if got := e.GetCause() == bridgev1.EventCause_EVENT_CAUSE_BRIDGE; got != test.bridge {
					t.Errorf("caused by the bridge: %v, want %v", got, test.bridge)
				}
				if e.GetTruncated() != test.cut {
					t.Errorf("truncated: %v, want %v", e.GetTruncated(), test.cut)
				}
				original := test.form == journal.TidyOriginal || test.form == journal.ExactOriginal
				if (e.OriginalJson != nil) != original {
					t.Errorf("has the original: %v, want %v", e.OriginalJson != nil, original)
				}
				if original && !test.cut && e.GetOriginalJson() != test.json {
					t.Errorf("original %q, want %q", e.GetOriginalJson(), test.json)
				}
			}
		})
	}
}

// TestEventAllocations guards the hot path from the frame to the shared bytes: an event
// allocates its JSON, its record and its encoded form. What the journal's maps and lists
// grow by is spread over many events.
func TestEventAllocations(t *testing.T) {
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	const events = 2000
	frames := make([][]byte, events)
	for i := range frames {
		frames[i] = []byte(strings.Replace(deltaFrame, "3f6f2f3c9a11", string([]byte{
			'0', '0', '0', '0', '0', '0', '0', '0', "0123456789abcdef"[i>>12&15], "0123456789abcdef"[i>>8&15], "0123456789abcdef"[i>>4&15], "0123456789abcdef"[i&15],
		}), 1))
	}
	const want = 3
	allocations := testing.AllocsPerRun(5, func() {
		j := journal.New(journal.Config{Epoch: 1, Encode: c.event})
		reader, err := j.NewReader(journal.Position{}, true, func() {})
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		names := session.Names{}
		var records []*journal.Record
		var wires [][]byte
		for i, frame := range frames {
			f, err := translate.ScanFrame(frame)
			if err != nil {
				t.Fatal(err)
			}
			if !j.Append(session.Record(f.Event, append([]byte(nil), f.Event.Raw...), names)) {
				t.Fatalf("event %d was taken for a copy", i)
			}
			records, _ = reader.Next(records[:0], batchBytes)
			wires = j.Wire(wires[:0], records, journal.Tidy)
		}
	}) / events
	if allocations > want+0.2 {
		t.Errorf("%.2f allocations per event, want %d", allocations, want)
	}
}
