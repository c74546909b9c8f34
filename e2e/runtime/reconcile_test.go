package runtime

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// conversation is a session with turns of these texts, at rest and written down.
func conversation(d *harness.Daemon, texts ...string) (id string) {
	d.T.Helper()
	id, _ = open(d, texts[0], nil)
	d.After(id, nil, "session.idle")
	for _, text := range texts[1:] {
		d.SayTo(id, text)
	}
	d.Written(id)
	return id
}

// message is the id and the line of a user's message in the CLI's own record.
func message(d *harness.Daemon, id, text string) (event string, line int) {
	d.T.Helper()
	for i, l := range lines(d, id) {
		var e struct {
			ID, Type string
			Data     struct{ Content string }
		}
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			d.T.Fatal(err)
		}
		if e.Type == "user.message" && e.Data.Content == text {
			return e.ID, i
		}
	}
	d.T.Fatalf("the CLI's record of %s has no message %q", id, text)
	return "", 0
}

func recordOf(d *harness.Daemon, id string) string {
	return filepath.Join(d.Root, "home", "session-state", id, "events.jsonl")
}

func lines(d *harness.Daemon, id string) []string {
	d.T.Helper()
	text, err := os.ReadFile(recordOf(d, id))
	if err != nil {
		d.T.Fatal(err)
	}
	return slices.Collect(strings.Lines(string(text)))
}

// cli is a connection for the services of copilot.cli.v1.
func cli(d *harness.Daemon) grpc.ClientConnInterface { return d.Client.Conn() }

// TestHistoryIsCut: a call takes the end of the conversation away during reading. Readers see it as an event, positions
// go on, and the journal agrees with the CLI's record in every later life.
func TestHistoryIsCut(t *testing.T) {
	t.Parallel()
	d := harness.NewDaemon(harness.NewScripted(t))
	id := conversation(d, "one", "two", "three")
	second, _ := message(d, id, "two")
	_, before := d.Durable(id)
	history := cliv1.NewSessionHistoryServiceClient(cli(d))
	if _, err := history.Truncate(d.Ctx,
		&cliv1.SessionHistoryServiceTruncateRequest{SessionId: id, EventId: second}); err != nil {
		t.Fatal(err)
	}
	_, gaps := d.After(id, before[len(before)-1], "session.snapshot_rewind")
	if len(gaps) > 0 {
		t.Errorf("a reader is told of gaps: %v", gaps)
	}
	d.SayTo(id, "four")
	d.Written(id)
	d.Crash()
	d.Provide(id)
	d.SayTo(id, "five")
	d.Agrees(id)
	if ids, at := d.Durable(id); at[0].GetEpoch() != before[0].GetEpoch() || !slices.Contains(ids, second) {
		t.Errorf("the journal went from %v to %v, or lost what was cut", before[0], at[0])
	}
}

// TestHistoryIsRewound: going back to a message takes it, and everything after it, out of the conversation. To readers
// it looks like a cut; no position occurs twice, in no life.
func TestHistoryIsRewound(t *testing.T) {
	t.Parallel()
	d := harness.NewDaemon(harness.NewScripted(t))
	id := conversation(d, "one", "two", "three")
	second, _ := message(d, id, "two")
	ids, before := d.Durable(id)
	history := cliv1.NewSessionHistoryServiceClient(cli(d))
	back, err := history.Rewind(d.Ctx, &cliv1.SessionHistoryServiceRewindRequest{
		SessionId: id, EventId: second, Mode: cliv1.HistoryRewindMode_HISTORY_REWIND_MODE_CONVERSATION,
	})
	if err != nil || back.GetOutcome() != cliv1.HistoryRewindOutcome_HISTORY_REWIND_OUTCOME_SUCCESS ||
		back.GetEventsRemoved() == 0 {
		t.Fatalf("rewound: %v, %v", back, err)
	}
	if _, gaps := d.After(id, before[len(before)-1], "session.snapshot_rewind"); len(gaps) > 0 {
		t.Errorf("a reader is told of gaps: %v", gaps)
	}
	d.SayTo(id, "four")
	d.Written(id)
	for _, text := range []string{"five", "six"} { // each in a separate life
		d.Crash()
		d.Provide(id)
		d.SayTo(id, text)
		d.Written(id)
	}
	d.Agrees(id)
	now, at := d.Durable(id)
	if !slices.Equal(now[:len(ids)], ids) || !samePositions(at[:len(ids)], before) {
		t.Errorf("what was before was at %v, and is at %v", before, at[:len(ids)])
	}
	told := strings.Join(harness.UserTexts(d.Scripted), "\n")
	for text, want := range map[string]bool{"one": true, "two": false, "three": false, "four": true, "five": true,
		"six": true} {
		if strings.Contains(told, text) != want {
			t.Errorf("the model is told %q, which has %q: %v", told, text, !want)
		}
	}
}

// TestHistoryIsCompacted: the model's messages are made short, the history is not; the journal goes on unchanged, also
// when the session is loaded again.
func TestHistoryIsCompacted(t *testing.T) {
	t.Parallel()
	d := harness.NewDaemon(harness.NewScripted(t))
	id := conversation(d, "one", "two", "three")
	ids, before := d.Durable(id)
	history := cliv1.NewSessionHistoryServiceClient(cli(d))
	if _, err := history.Compact(d.Ctx, &cliv1.SessionHistoryServiceCompactRequest{SessionId: id}); err != nil {
		t.Fatal(err)
	}
	if _, gaps := d.After(id, before[len(before)-1], "session.compaction_complete"); len(gaps) > 0 {
		t.Errorf("a reader is told of gaps: %v", gaps)
	}
	d.SayTo(id, "four")
	d.Written(id)
	d.Crash()
	d.Provide(id)
	d.SayTo(id, "five")
	d.Agrees(id)
	if now, at := d.Durable(id); !slices.Equal(now[:len(ids)], ids) ||
		at[len(ids)-1].GetSeq() != before[len(ids)-1].GetSeq() || at[0].GetEpoch() != before[0].GetEpoch() {
		t.Errorf("what was before the compaction was at %v, and is at %v", before, at[:len(ids)])
	}
}

// TestHistoryIsRewritten: while the bridge was away a turn was cut out of the middle of the conversation. A returning
// reader learns that its epoch is over.
func TestHistoryIsRewritten(t *testing.T) {
	t.Parallel()
	d := harness.NewDaemon(harness.NewScripted(t))
	id := conversation(d, "one", "two", "three")
	_, before := d.Durable(id)
	d.Stop(syscall.SIGTERM)
	_, from := message(d, id, "two")
	_, to := message(d, id, "three")
	lines := slices.Delete(lines(d, id), from, to)
	if err := os.WriteFile(recordOf(d, id), []byte(strings.Join(relinked(d, lines), "")), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Start()
	d.Provide(id)
	_, gaps := d.After(id, before[len(before)-1], "session.idle")
	if len(gaps) == 0 || gaps[0].GetReason() != bridgev1.GapReason_GAP_REASON_EPOCH_ENDED ||
		gaps[0].GetSession().GetSessionId() != id {
		t.Errorf("who comes back is told %v", gaps)
	}
	d.SayTo(id, "four")
	d.Agrees(id)
}

// relinked gives the lines of a record the parents that they have now.
func relinked(d *harness.Daemon, lines []string) []string {
	d.T.Helper()
	var last any
	for i, l := range lines {
		var e map[string]any
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			d.T.Fatal(err)
		}
		e["parentId"] = last
		last = e["id"]
		text, err := json.Marshal(e)
		if err != nil {
			d.T.Fatal(err)
		}
		lines[i] = string(text) + "\n"
	}
	return lines
}
