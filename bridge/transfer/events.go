package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"io"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
)

// entry is a line of journal.jsonl.
type entry struct {
	// Bridge reports that the bridge's own bookkeeping caused the event.
	Bridge bool            `json:"bridge,omitempty"`
	Event  json.RawMessage `json:"event"`
}

// durable reports whether a journal stores an event permanently.
func durable(rec *journal.Record) bool { return !rec.Ephemeral || journal.KeptTypes[rec.Type] }

// writeEvents writes the durable events of a journal, and returns the position of the last one.
func writeEvents(ctx context.Context, j *journal.Journal, to io.Writer) (last journal.Position, err error) {
	last = j.Last()
	for rec := range event.Since(ctx, j, journal.Position{}) {
		if !durable(rec) {
			continue
		}
		line, err := marshal(entry{rec.Bridge, rec.JSON})
		if err != nil {
			return last, err
		}
		if _, err := to.Write(append(line, '\n')); err != nil {
			return last, err
		}
	}
	return last, ctx.Err()
}

// settleBytes are the bytes of events that an import adds before it waits for the disk: the journal drops events if
// too many wait.
const settleBytes = 4 << 20

// readEvents adds the events of journal.jsonl to an empty journal, and returns their number once they are on disk.
func readEvents(ctx context.Context, from io.Reader, j *journal.Journal) (count int64, err error) {
	waiting := 0
	err = eachLine(from, func(line []byte) error {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return invalid("%s: %v", journalFile, err)
		}
		rec, err := event.Parse(bytes.Clone(e.Event))
		if err != nil || rec.Type == "" {
			return invalid("%s: a line has no event", journalFile)
		}
		if !durable(rec) {
			return invalid("%s: an event of type %q is not durable", journalFile, rec.Type)
		}
		rec.Bridge = e.Bridge
		if !j.Append(rec) {
			return invalid("%s: an event occurs twice", journalFile)
		}
		count++
		if waiting += len(line); waiting < settleBytes {
			return nil
		}
		waiting = 0
		return j.AwaitShown(ctx)
	})
	if err == nil {
		err = j.AwaitShown(ctx)
	}
	if err == nil {
		err = j.Degraded()
	}
	return count, err
}
