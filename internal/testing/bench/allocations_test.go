package bench

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/race"
)

const deltaEvent = `{"type":"assistant.message_delta","data":{"messageId":"m1","deltaContent":" the next"},"ephemeral":true,` +
	`"id":"0b0f1f9a-3b0c-4a55-9d57-3f6f2f3c9a11","timestamp":"2026-01-02T03:04:05.678Z","parentId":"5a3c2f68-7b43-4be2-8c2c-6a9f6d0f7a20"}`

const deltaFrame = `{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"s1","event":` + deltaEvent + `}}`

// TestEventAllocations guards the hot path from the frame to the shared bytes: an event allocates its JSON, its
// record and its encoded form. The growth of the journal's maps and lists is spread over many events.
func TestEventAllocations(t *testing.T) {
	c := wire.New(slog.New(slog.DiscardHandler))
	const events = 2000
	frames := make([][]byte, events)
	for i := range frames {
		frames[i] = []byte(strings.Replace(deltaFrame, "3f6f2f3c9a11", string([]byte{
			'0', '0', '0', '0', '0', '0', '0', '0', "0123456789abcdef"[i>>12&15], "0123456789abcdef"[i>>8&15], "0123456789abcdef"[i>>4&15], "0123456789abcdef"[i&15],
		}), 1))
	}
	const want = 3
	slack := 0.2 // the share of events that may find the pool of buffers empty
	if race.Enabled {
		slack = 1.5 // the detector makes sync.Pool drop items
	}
	allocations := testing.AllocsPerRun(5, func() {
		j := journal.New(journal.Config{Epoch: 1, Encode: c.Event})
		reader, err := j.NewReader(journal.Position{}, true, func() {})
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		names := event.Names{}
		var records []*journal.Record
		var wires [][]byte
		for i, frame := range frames {
			f, err := translate.ScanFrame(frame)
			if err != nil {
				t.Fatal(err)
			}
			if !j.Append(event.Record(f.Event, append([]byte(nil), f.Event.Raw...), names)) {
				t.Fatalf("event %d was taken for a copy", i)
			}
			records, _ = reader.Next(records[:0], stream.BatchBytes)
			wires = j.Wire(wires[:0], records, journal.Tidy)
		}
	}) / events
	if allocations > want+slack {
		t.Errorf("%.2f allocations per event, want %d", allocations, want)
	}
}
