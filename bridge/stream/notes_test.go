package stream_test

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// keptTypes are the ephemeral types that docs/reliability.md promises to keep.
func keptTypes(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile("(?s)these ephemeral ones,(.*)`journal.KeptTypes`").FindSubmatch(page)
	if list == nil {
		t.Fatal("docs/reliability.md lists no types")
	}
	var out []string
	for _, word := range regexp.MustCompile("`([a-z_.]+)`").FindAllSubmatch(list[1], -1) {
		out = append(out, string(word[1]))
	}
	return out
}

// Events for state and billing survive a killed bridge, although the CLI does not store them; other ephemeral
// events do not.
func TestKeptTypesOutliveTheBridge(t *testing.T) {
	t.Parallel()
	types := keptTypes(t)
	if len(types) != len(journal.KeptTypes) {
		t.Errorf("the page lists %d types, the journal keeps %d", len(types), len(journal.KeptTypes))
	}
	r := bridgetest.New(t, bridgetest.Hanging, bridgetest.Stored)
	r.Create("s1")
	r.Ask("s1", "hi")
	watching := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	watching.Until("<caught_up>")
	const passing = "session.background_tasks_changed"
	for _, typ := range append([]string{passing}, types...) {
		r.FakeCLI().Emit("s1", fakecli.Event{Type: typ, Data: json.RawMessage(`{"marked":true}`), Ephemeral: true})
	}
	marked := func(s *bridgetest.Stream, last string) (got []string) {
		s.Frame(last, func(f *bridgev1.SubscribeResponse) bool {
			for _, e := range f.GetEvents().GetEvents() {
				if strings.Contains(e.String(), "marked") {
					got = append(got, e.GetEvent().GetEventType())
				}
			}
			return slices.Contains(bridgetest.Kinds(f), last)
		})
		return got
	}
	if got := marked(watching, types[len(types)-1]); !slices.Equal(got, append([]string{passing}, types...)) {
		t.Errorf("live: got %q", got)
	}
	next := r.Restart()
	again := next.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	if got := marked(again, "<caught_up>"); !slices.Equal(got, types) {
		t.Errorf("in the next life: got %q, want %q", got, types)
	}
}

// A stream says why it is over.
func TestStreamsSayWhyTheyEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(ctx context.Context, r *bridgetest.Bridge) error
		want bridgev1.CloseReason
	}{
		"disconnected": {func(ctx context.Context, r *bridgetest.Bridge) error {
			_, err := r.Sessions.DisconnectSession(ctx, &bridgev1.DisconnectSessionRequest{SessionId: "s1"})
			return err
		}, bridgev1.CloseReason_CLOSE_REASON_DISCONNECTED},
		"deleted": {func(ctx context.Context, r *bridgetest.Bridge) error {
			_, err := r.Sessions.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: "s1"})
			return err
		}, bridgev1.CloseReason_CLOSE_REASON_DELETED},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bridgetest.New(t, bridgetest.Hanging)
			r.Create("s1")
			r.Ask("s1", "hi")
			watching := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
			watching.Until("<caught_up>")
			if err := test.end(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			closed := watching.Frame("the end", func(f *bridgev1.SubscribeResponse) bool { return f.GetClosed() != nil })
			if closed.GetSessionId() != "s1" || closed.GetClosed().GetReason() != test.want {
				t.Errorf("got %v", closed)
			}
		})
	}
}

// A reader that stops forever delays no other reader, on a journal that is on disk and has little memory. When
// it reads again it receives all stored events.
func TestStoppedReaderOnDisk(t *testing.T) {
	t.Parallel()
	kept, err := store.Open(store.Config{Dir: t.TempDir(), Journals: journal.WriterConfig{Fsync: journal.FsyncAlways, SegmentBytes: 16 << 10}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() })
	burst := fakecli.Prompt{Match: "burst", Turns: []fakecli.Turn{{Deltas: &fakecli.Deltas{Count: 500, Size: 100}, Text: "end"}}}
	r := bridgetest.New(t, fakecli.Script{Prompts: []fakecli.Prompt{burst}}, bridgetest.Restarts, func(c *bridgetest.Options) {
		c.Directory, c.MaxEphemeralBytes, c.MaxMemoryBytes = kept, 16<<10, 64<<10
	})
	r.Create("s1")
	stopped := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	stopped.Until("<caught_up>")
	stopped.Hold()
	const turns = 20
	for range turns {
		if out := r.Ask("s1", "burst"); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
			t.Errorf("with a reader that has stopped, a turn is %v", out)
		}
	}
	durable := func(s *bridgetest.Stream) (got []string) {
		gaps := 0
		for idle := 0; idle < turns; {
			f := s.Next()
			if f.GetGap().GetReason() == bridgev1.GapReason_GAP_REASON_EPHEMERAL_LOST && f.GetGap().GetSession().GetSessionId() == "s1" {
				gaps++
			}
			for _, e := range f.GetEvents().GetEvents() {
				switch {
				case e.GetEvent().GetEventType() == "session.idle":
					idle++
				case !e.GetEvent().GetEphemeral() &&
					slices.Contains([]string{"user.message", "assistant.message"}, e.GetEvent().GetEventType()):
					got = append(got, e.GetEvent().GetId())
				}
			}
		}
		if gaps == 0 {
			t.Error("it was not told what it lacks")
		}
		return got
	}
	fresh := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	want := durable(fresh)
	stopped.Release()
	if got := durable(stopped); len(want) != 2*turns || !slices.Equal(got, want) {
		t.Errorf("who stopped has %d messages, who did not %d", len(got), len(want))
	}
}
