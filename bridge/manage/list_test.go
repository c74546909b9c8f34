package manage_test

import (
	"slices"
	"testing"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// wantListed checks the ids that ListSessions returns by default and with the history.
func wantListed(r *bridgetest.Bridge, when string, own, history []string) {
	r.T.Helper()
	for includeHistory, want := range map[bool][]string{false: own, true: history} {
		q := &bridgev1.ListSessionsRequest{IncludeHistory: includeHistory}
		list, err := r.Sessions.ListSessions(r.T.Context(), q)
		if err != nil {
			r.T.Fatal(err)
		}
		var got []string
		for _, s := range list.GetSessions() {
			got = append(got, s.GetSessionId())
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			r.T.Errorf("%s: sessions %q are listed, want %q (history: %t)", when, got, want, includeHistory)
		}
	}
}

// A list has the sessions that were opened here, whatever became of them, and not those of others on the same home.
func TestListWithoutHistory(t *testing.T) {
	t.Parallel()
	k := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored)
	k.Create("own")
	k.Ask("own", "hello")
	terminal := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored, bridgetest.Home(k.Home))
	for _, id := range []string{"theirs", "adopted"} {
		terminal.Create(id)
		terminal.Ask(id, "hello")
		terminal.Disconnect(id)
	}
	all := []string{"adopted", "own", "theirs"}
	wantListed(k, "open", []string{"own"}, all)
	if _, err := k.Sessions.ResumeSession(t.Context(), &bridgev1.ResumeSessionRequest{SessionId: "adopted"}); err != nil {
		t.Fatal(err)
	}
	opened := []string{"adopted", "own"}
	wantListed(k, "with one that was resumed", opened, all)
	k.Disconnect("own")
	k.Disconnect("adopted")
	wantListed(k, "disconnected", opened, all)
	wantListed(k.Restart(), "after a restart", opened, all)
}

// A server that stores nothing cannot tell its own sessions of an earlier life from those of others.
func TestListWithoutDirectory(t *testing.T) {
	t.Parallel()
	l := bridgetest.New(t, fakecli.Script{}, bridgetest.Restarts)
	l.Create("old")
	l.Ask("old", "hello")
	l.Disconnect("old")
	wantListed(bridgetest.New(t, fakecli.Script{}, bridgetest.Home(l.Home)), "a new life", []string{"old"}, []string{"old"})
}
