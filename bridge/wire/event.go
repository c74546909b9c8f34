package wire

import (
	"bytes"
	"errors"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// The field numbers that event writes by hand; a test compares them with the descriptor.
const (
	fieldBatchEvents   protowire.Number = 1
	fieldEventPosition protowire.Number = 1
	fieldEventEvent    protowire.Number = 2
	fieldEventOriginal protowire.Number = 3
	fieldEventCause    protowire.Number = 4
	fieldEventCut      protowire.Number = 5
	fieldEpoch         protowire.Number = 1
	fieldSeq           protowire.Number = 2
	fieldType          protowire.Number = 1
	fieldUnrecognized  protowire.Number = 1001
)

// Event is the journal's encoder. It returns an element of EventBatch.events with its tag and length, so that a
// frame is a sequence of such elements. It builds the element in a reused buffer and returns an exact copy.
func (c *Codec) Event(r *journal.Record, f journal.Form) []byte {
	scratch := c.scratch.Get().(*[]byte)
	out, start := c.putEvent((*scratch)[:0], r, f)
	wire := bytes.Clone(out[start:])
	if cap(out) <= maxScratch {
		*scratch = out
		c.scratch.Put(scratch)
	}
	return wire
}

// AppendEvent appends what Event returns.
func (c *Codec) AppendEvent(dst []byte, r *journal.Record, f journal.Form) []byte {
	out, start := c.putEvent(dst, r, f)
	return append(out[:len(dst)], out[start:]...)
}

// errNoTable is the error for events if their table cannot be made.
var errNoTable = errors.New("the table of events could not be made")

// putEvent puts an event together behind dst. It begins at start, after room for what comes
// before it and is only known afterwards.
func (c *Codec) putEvent(dst []byte, r *journal.Record, f journal.Form) (out []byte, start int) {
	original := f == journal.TidyOriginal || f == journal.ExactOriginal
	limit, fidelity := journal.MaxEventBytes, translate.Tidy
	if original {
		limit /= 2
	}
	if f == journal.Exact || f == journal.ExactOriginal {
		fidelity = translate.Exact
	}
	text, cut := journal.CutEvent(r.JSON, limit)

	room := len(dst) + EventHead
	out = slices.Grow(dst, EventHead+len(text))[:room]
	var typed []byte
	events, err := c.events(), errNoTable
	if events != nil {
		typed, err = events.AppendWire(out, text, fidelity)
	}
	if err != nil {
		typed = protowire.AppendString(protowire.AppendTag(out, fieldType, protowire.BytesType), r.Type)
		typed = protowire.AppendBytes(protowire.AppendTag(typed, fieldUnrecognized, protowire.BytesType), text)
	}
	out = typed
	if original {
		out = protowire.AppendBytes(protowire.AppendTag(out, fieldEventOriginal, protowire.BytesType), text)
	}
	if r.Bridge {
		out = protowire.AppendVarint(protowire.AppendTag(out, fieldEventCause, protowire.VarintType), uint64(bridgev1.EventCause_EVENT_CAUSE_BRIDGE))
	}
	if cut {
		out = protowire.AppendVarint(protowire.AppendTag(out, fieldEventCut, protowire.VarintType), 1)
	}
	return out, len(dst) + putHead(out[len(dst):], r.Pos, len(typed)-room)
}

const (
	// EventHead is room for the tags and lengths of an event and its parts and for its
	// position, all at their longest.
	EventHead = 48
	// maxScratch is the largest buffer that is reused.
	maxScratch = 1 << 20
)

// putHead writes what comes before an event's typed form, of size bytes, right before
// it, and returns where that begins.
func putHead(out []byte, p journal.Position, size int) int {
	var parts [2][EventHead]byte
	pos := AppendPosition(parts[0][:0], p)
	body := protowire.SizeTag(fieldEventPosition) + protowire.SizeBytes(len(pos)) +
		protowire.SizeTag(fieldEventEvent) + protowire.SizeBytes(size) + len(out) - EventHead - size
	head := protowire.AppendVarint(protowire.AppendTag(parts[1][:0], fieldBatchEvents, protowire.BytesType), uint64(body))
	head = protowire.AppendBytes(protowire.AppendTag(head, fieldEventPosition, protowire.BytesType), pos)
	head = protowire.AppendVarint(protowire.AppendTag(head, fieldEventEvent, protowire.BytesType), uint64(size))
	start := EventHead - len(head)
	copy(out[start:], head)
	return start
}

// AppendPosition appends a Position message.
func AppendPosition(dst []byte, p journal.Position) []byte {
	dst = protowire.AppendVarint(protowire.AppendTag(dst, fieldEpoch, protowire.VarintType), p.Epoch)
	return protowire.AppendVarint(protowire.AppendTag(dst, fieldSeq, protowire.VarintType), p.Seq)
}
