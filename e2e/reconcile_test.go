package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// conversation is a session with turns of these texts, at rest and written down.
func (d *daemon) conversation(texts ...string) (id string) {
	d.t.Helper()
	id, _ = d.open(texts[0], nil)
	d.after(id, nil, "session.idle")
	for _, text := range texts[1:] {
		d.sayTo(id, text)
	}
	d.written(id)
	return id
}

// written waits until the CLI has written down what the journal has.
func (d *daemon) written(id string) {
	d.t.Helper()
	d.eventually("the CLI's record of "+id, func() bool {
		ids, _ := d.durable(id)
		known := d.oracle(id)
		return len(known) > 0 && slices.Contains(known, ids[len(ids)-1])
	})
}

// message is the id and the line of a user's message in the CLI's own record.
func (d *daemon) message(id, text string) (event string, line int) {
	d.t.Helper()
	for i, l := range d.lines(id) {
		var e struct {
			ID, Type string
			Data     struct{ Content string }
		}
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			d.t.Fatal(err)
		}
		if e.Type == "user.message" && e.Data.Content == text {
			return e.ID, i
		}
	}
	d.t.Fatalf("the CLI's record of %s has no message %q", id, text)
	return "", 0
}

func (d *daemon) recordOf(id string) string {
	return filepath.Join(d.root, "home", "session-state", id, "events.jsonl")
}

func (d *daemon) lines(id string) []string {
	d.t.Helper()
	text, err := os.ReadFile(d.recordOf(id))
	if err != nil {
		d.t.Fatal(err)
	}
	return slices.Collect(strings.Lines(string(text)))
}

// cli is a connection for the services of copilot.cli.v1.
func (d *daemon) cli() grpc.ClientConnInterface { return d.client.Conn() }

// TestHistoryIsCut: a call takes the end of the conversation away while somebody reads.
// Readers see it as an event, positions go on, and the journal agrees with the CLI's record
// in every later life.
func TestHistoryIsCut(t *testing.T) {
	t.Parallel()
	d := newDaemon(newStage(t))
	id := d.conversation("one", "two", "three")
	second, _ := d.message(id, "two")
	_, before := d.durable(id)
	history := cliv1.NewSessionHistoryServiceClient(d.cli())
	if _, err := history.Truncate(d.ctx, &cliv1.SessionHistoryServiceTruncateRequest{SessionId: id, EventId: second}); err != nil {
		t.Fatal(err)
	}
	_, gaps := d.after(id, before[len(before)-1], "session.snapshot_rewind")
	if len(gaps) > 0 {
		t.Errorf("a reader is told of gaps: %v", gaps)
	}
	d.sayTo(id, "four")
	d.written(id)
	d.crash()
	d.provide(id)
	d.sayTo(id, "five")
	d.agrees(id)
	if ids, at := d.durable(id); at[0].GetEpoch() != before[0].GetEpoch() || !slices.Contains(ids, second) {
		t.Errorf("the journal went from %v to %v, or lost what was cut", before[0], at[0])
	}
}

// TestHistoryIsRewound: going back to a message takes it, and what came after it, out of the
// conversation. It is to readers as if it had been cut; no position is given twice, in no life.
func TestHistoryIsRewound(t *testing.T) {
	t.Parallel()
	d := newDaemon(newStage(t))
	id := d.conversation("one", "two", "three")
	second, _ := d.message(id, "two")
	ids, before := d.durable(id)
	history := cliv1.NewSessionHistoryServiceClient(d.cli())
	back, err := history.Rewind(d.ctx, &cliv1.SessionHistoryServiceRewindRequest{
		SessionId: id, EventId: second, Mode: cliv1.HistoryRewindMode_HISTORY_REWIND_MODE_CONVERSATION,
	})
	if err != nil || back.GetOutcome() != cliv1.HistoryRewindOutcome_HISTORY_REWIND_OUTCOME_SUCCESS || back.GetEventsRemoved() == 0 {
		t.Fatalf("rewound: %v, %v", back, err)
	}
	if _, gaps := d.after(id, before[len(before)-1], "session.snapshot_rewind"); len(gaps) > 0 {
		t.Errorf("a reader is told of gaps: %v", gaps)
	}
	d.sayTo(id, "four")
	d.written(id)
	for _, text := range []string{"five", "six"} { // in a life of its own each
		d.crash()
		d.provide(id)
		d.sayTo(id, text)
		d.written(id)
	}
	d.agrees(id)
	now, at := d.durable(id)
	if !slices.Equal(now[:len(ids)], ids) || !samePositions(at[:len(ids)], before) {
		t.Errorf("what was before was at %v, and is at %v", before, at[:len(ids)])
	}
	told := strings.Join(userTexts(d.stage), "\n")
	for text, want := range map[string]bool{"one": true, "two": false, "three": false, "four": true, "five": true, "six": true} {
		if strings.Contains(told, text) != want {
			t.Errorf("the model is told %q, which has %q: %v", told, text, !want)
		}
	}
}

// TestHistoryIsCompacted: what the model is told is made short, the history is not; the
// journal goes on as it was, also when the session is loaded again.
func TestHistoryIsCompacted(t *testing.T) {
	t.Parallel()
	d := newDaemon(newStage(t))
	id := d.conversation("one", "two", "three")
	ids, before := d.durable(id)
	history := cliv1.NewSessionHistoryServiceClient(d.cli())
	if _, err := history.Compact(d.ctx, &cliv1.SessionHistoryServiceCompactRequest{SessionId: id}); err != nil {
		t.Fatal(err)
	}
	if _, gaps := d.after(id, before[len(before)-1], "session.compaction_complete"); len(gaps) > 0 {
		t.Errorf("a reader is told of gaps: %v", gaps)
	}
	d.sayTo(id, "four")
	d.written(id)
	d.crash()
	d.provide(id)
	d.sayTo(id, "five")
	d.agrees(id)
	if now, at := d.durable(id); !slices.Equal(now[:len(ids)], ids) || at[len(ids)-1].GetSeq() != before[len(ids)-1].GetSeq() || at[0].GetEpoch() != before[0].GetEpoch() {
		t.Errorf("what was before the compaction was at %v, and is at %v", before, at[:len(ids)])
	}
}

// TestHistoryIsRewritten: while the bridge was away somebody has cut a turn out of the
// middle of the conversation. A reader that comes back is told that its epoch is over.
func TestHistoryIsRewritten(t *testing.T) {
	t.Parallel()
	d := newDaemon(newStage(t))
	id := d.conversation("one", "two", "three")
	_, before := d.durable(id)
	d.stop(syscall.SIGTERM)
	_, from := d.message(id, "two")
	_, to := d.message(id, "three")
	lines := slices.Delete(d.lines(id), from, to)
	if err := os.WriteFile(d.recordOf(id), []byte(strings.Join(d.relinked(lines), "")), 0o600); err != nil {
		t.Fatal(err)
	}
	d.start()
	d.provide(id)
	_, gaps := d.after(id, before[len(before)-1], "session.idle")
	if len(gaps) == 0 || gaps[0].GetReason() != bridgev1.GapReason_GAP_REASON_EPOCH_ENDED || gaps[0].GetSession().GetSessionId() != id {
		t.Errorf("who comes back is told %v", gaps)
	}
	d.sayTo(id, "four")
	d.agrees(id)
}

// relinked gives the lines of a record the parents that they have now.
func (d *daemon) relinked(lines []string) []string {
	d.t.Helper()
	var last any
	for i, l := range lines {
		var e map[string]any
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			d.t.Fatal(err)
		}
		e["parentId"] = last
		last = e["id"]
		text, err := json.Marshal(e)
		if err != nil {
			d.t.Fatal(err)
		}
		lines[i] = string(text) + "\n"
	}
	return lines
}
