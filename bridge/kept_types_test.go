package bridge

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// keptTypes are the ephemeral types that docs/reliability.md promises to keep.
func keptTypes(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/reliability.md")
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
	r := newKept(t, always(hanging))
	r.create("s1")
	r.ask("s1", "hi")
	watching := r.subscribe(&bridgev1.SubscribeRequest{Sessions: one("s1")})
	watching.until("<caught_up>")
	const passing = "session.background_tasks_changed"
	for _, typ := range append([]string{passing}, types...) {
		r.life().Emit("s1", fakecli.Event{Type: typ, Data: json.RawMessage(`{"marked":true}`), Ephemeral: true})
	}
	marked := func(s *reading, last string) (got []string) {
		s.frame(last, func(f *bridgev1.SubscribeResponse) bool {
			for _, e := range f.GetEvents().GetEvents() {
				if strings.Contains(e.String(), "marked") {
					got = append(got, e.GetEvent().GetEventType())
				}
			}
			return slices.Contains(words(f), last)
		})
		return got
	}
	if got := marked(watching, types[len(types)-1]); !slices.Equal(got, append([]string{passing}, types...)) {
		t.Errorf("live: got %q", got)
	}
	next := r.reborn()
	again := next.subscribe(&bridgev1.SubscribeRequest{Sessions: one("s1")})
	if got := marked(again, "<caught_up>"); !slices.Equal(got, types) {
		t.Errorf("in the next life: got %q, want %q", got, types)
	}
}

// A stream says why it is over.
func TestStreamsSayWhyTheyEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(ctx context.Context, r *rig) error
		want bridgev1.CloseReason
	}{
		"disconnected": {func(ctx context.Context, r *rig) error {
			_, err := r.Sessions.DisconnectSession(ctx, &bridgev1.DisconnectSessionRequest{SessionId: "s1"})
			return err
		}, bridgev1.CloseReason_CLOSE_REASON_DISCONNECTED},
		"deleted": {func(ctx context.Context, r *rig) error {
			_, err := r.Sessions.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: "s1"})
			return err
		}, bridgev1.CloseReason_CLOSE_REASON_DELETED},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, hanging)
			r.create("s1")
			r.ask("s1", "hi")
			watching := r.subscribe(&bridgev1.SubscribeRequest{Sessions: one("s1")})
			watching.until("<caught_up>")
			if err := test.end(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			closed := watching.frame("the end", func(f *bridgev1.SubscribeResponse) bool { return f.GetClosed() != nil })
			if closed.GetSessionId() != "s1" || closed.GetClosed().GetReason() != test.want {
				t.Errorf("got %v", closed)
			}
		})
	}
}
