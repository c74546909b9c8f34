package bridge

import (
	"slices"
	"testing"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// wantListed checks the ids that ListSessions returns by default and with the history.
func (r *rig) wantListed(when string, own, history []string) {
	r.t.Helper()
	for includeHistory, want := range map[bool][]string{false: own, true: history} {
		q := &bridgev1.ListSessionsRequest{IncludeHistory: includeHistory}
		list, err := r.Sessions.ListSessions(r.t.Context(), q)
		if err != nil {
			r.t.Fatal(err)
		}
		var got []string
		for _, s := range list.GetSessions() {
			got = append(got, s.GetSessionId())
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			r.t.Errorf("%s: sessions %q are listed, want %q (history: %t)", when, got, want, includeHistory)
		}
	}
}

// A list has the sessions that were opened here, whatever became of them, and not those of others on the same home.
func TestListWithoutHistory(t *testing.T) {
	t.Parallel()
	script := always(fakecli.Script{})
	k := newKept(t, script)
	k.create("own")
	k.ask("own", "hello")
	terminal := openKept(t, t.TempDir(), k.home, script)
	for _, id := range []string{"theirs", "adopted"} {
		terminal.create(id)
		terminal.ask(id, "hello")
		terminal.disconnect(id)
	}
	all := []string{"adopted", "own", "theirs"}
	k.wantListed("open", []string{"own"}, all)
	if _, err := k.Sessions.ResumeSession(t.Context(), &bridgev1.ResumeSessionRequest{SessionId: "adopted"}); err != nil {
		t.Fatal(err)
	}
	opened := []string{"adopted", "own"}
	k.wantListed("with one that was resumed", opened, all)
	k.disconnect("own")
	k.disconnect("adopted")
	k.wantListed("disconnected", opened, all)
	k.reborn().wantListed("after a restart", opened, all)
}

// A server that stores nothing cannot tell its own sessions of an earlier life from those of others.
func TestListWithoutDirectory(t *testing.T) {
	t.Parallel()
	l := newLives(t, always(fakecli.Script{}))
	l.create("old")
	l.ask("old", "hello")
	l.disconnect("old")
	newLivesAt(t, l.home, always(fakecli.Script{})).wantListed("a new life", []string{"old"}, []string{"old"})
}
