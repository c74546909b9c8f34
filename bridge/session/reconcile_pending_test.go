package session

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestPending(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		live    []string
		waiting []string
		gone    bool
		// during runs while the CLI makes its list of permissions.
		during  func(t *testing.T, f *storyteller)
		want    []string
		changed bool
	}{
		"nothing":                        {},
		"the same":                       {live: []string{permission(1, "a")}, waiting: []string{"a"}, want: []string{"a"}},
		"the CLI does not wait":          {live: []string{permission(1, "a"), permission(2, "b")}, waiting: []string{"b"}, want: []string{"b"}, changed: true},
		"the CLI waits for an ended one": {live: []string{permission(1, "a"), permitted(2, "a")}, waiting: []string{"a"}, want: []string{"a"}, changed: true},
		"the journal does not have it":   {waiting: []string{"x"}},
		"the process is gone":            {live: []string{permission(1, "a"), permitted(2, "a")}, waiting: []string{"a"}, gone: true},
		"asked meanwhile": {waiting: []string{"a"}, want: []string{"a"}, during: func(t *testing.T, f *storyteller) {
			f.takes(t, permission(1, "a"))
		}},
		"asked behind the list": {want: []string{"a"}, during: func(t *testing.T, f *storyteller) {
			f.takes(t, permission(1, "a"))
		}},
		"asked and answered meanwhile": {waiting: []string{"a"}, during: func(t *testing.T, f *storyteller) {
			f.takes(t, permission(1, "a"), permitted(2, "a"))
		}},
		"answered meanwhile": {live: []string{permission(1, "a")}, waiting: []string{"a"}, during: func(t *testing.T, f *storyteller) {
			f.takes(t, permitted(2, "a"))
		}},
		"an answer that does not arrive ends it": {live: []string{permission(1, "a")}, waiting: []string{"a"}, want: []string{"a"}, changed: true, during: func(t *testing.T, f *storyteller) {
			p, err := f.s.callbacks.Registry().Claim("a")
			if err != nil {
				t.Error(err)
			}
			f.s.callbacks.Registry().Unreached(p)
			f.s.callbacks.finish(p, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_TIMED_OUT)
		}},
		"aborted meanwhile": {live: []string{permission(1, "a"), permitted(2, "a")}, waiting: []string{"a"}, during: func(t *testing.T, f *storyteller) {
			f.takes(t, textOf(3, "abort", `{}`))
		}},
		"aborted before": {
			live: []string{permission(1, "a"), permitted(2, "a"), textOf(3, "abort", `{}`)}, waiting: []string{"a"}, want: []string{"a"}, changed: true,
		},
		"an answer is on its way": {live: []string{permission(1, "a")}, want: []string{"a"}, during: func(t *testing.T, f *storyteller) {
			if _, err := f.s.callbacks.Registry().Claim("a"); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newStoryteller()
			f.takes(t, test.live...)
			f.lists(test.waiting...)
			if test.gone {
				f.s.loader.runtime = nil
			}
			f.onCall = func(method string) {
				if test.during != nil && method == listPermissions {
					test.during(t, f)
				}
			}
			asked, withdrawn, err := f.s.reconciler.pending(t.Context(), f)
			if changed := asked+len(withdrawn) > 0; err != nil || changed != test.changed {
				t.Errorf("changed: %t, %v; want %t", changed, err, test.changed)
			}
			if got := f.pending(); !slices.Equal(got, test.want) {
				t.Errorf("pending are %v, want %v", got, test.want)
			}
		})
	}
}

// While an answer is being delivered, that decides whether a callback is over, and the list if nothing is known of its end.
func TestPendingDuringAnAnswer(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		f := newStoryteller()
		f.takes(t, permission(1, "a"))
		p, err := f.s.callbacks.Registry().Claim("a")
		if err != nil {
			t.Fatal(err)
		}
		f.takes(t, permitted(2, "a")) // of a process that ends before it replies
		if f.lists(); waits {
			f.lists("a")
		}
		if _, _, err := f.s.reconciler.pending(t.Context(), f); err != nil {
			t.Error(err)
		}
		if over := f.s.callbacks.Registry().Unclaim(p); over == waits {
			t.Errorf("the CLI waits: %v, it is over: %v", waits, over)
		}
	}
}

func TestPendingErrors(t *testing.T) {
	t.Parallel()
	f := newStoryteller()
	f.replies["session.permissions.pendingRequests"] = `[]`
	if _, _, err := f.s.reconciler.pending(t.Context(), f); fault.ReasonOf(err) != fault.CLIProtocolError {
		t.Errorf("for a malformed list the error is %v", err)
	}
	if _, _, err := f.s.reconciler.pending(t.Context(), silent{f}); !errors.Is(err, errBroken) {
		t.Errorf("for a call that fails the error is %v", err)
	}
}

// TestWithdrawnCallsStayEnded: a caller's resume has ended the calls of a turn, and the CLI process ended before it wrote that
// down. The next one would go on with them.
func TestWithdrawnCallsStayEnded(t *testing.T) {
	t.Parallel()
	const (
		asks    = `{"requestId":"r1","permissionRequest":{"toolCallId":"c1"}}`
		refused = `{"requestId":"r1","toolCallId":"c1","result":{"kind":"denied-interactively-by-user"}}`
	)
	asked := []string{said(1), textOf(2, callback.PermissionRequested, asks)}
	resumed := textOf(4, "session.resume", `{"continuePendingWork":false,"sessionWasActive":false}`)
	for name, tc := range map[string]struct {
		history, later []string
		aborts         bool
	}{
		"no resume":                 {history: asked, later: []string{said(5)}},
		"a resume":                  {history: asked, later: []string{resumed, said(5)}, aborts: true},
		"a resume that is written":  {history: append(asked, resumed), later: []string{said(5)}},
		"a resume that continues":   {history: asked, later: []string{strings.Replace(resumed, "false", "true", 1), said(5)}},
		"nothing is open":           {history: asked[:1], later: []string{resumed, said(5)}},
		"a refused permission":      {history: append(asked, textOf(3, "permission.completed", refused)), later: []string{resumed, said(5)}, aborts: true},
		"an event of a sub-agent":   {history: asked, later: []string{strings.Replace(resumed, "{", `{"agentId":"a",`, 1), said(5)}},
		"the journal has no events": {history: asked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newStoryteller()
			if len(tc.later) > 0 {
				f.takes(t, tc.history...)
				f.takes(t, tc.later...)
			}
			f.s.callbacks.Withdraw(func(*callback.Pending) bool { return true }, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_SESSION_ENDED)
			f.has(tc.history...)
			f.replies["session.abort"] = `{}`
			aborted := false
			f.onCall = func(method string) {
				if method == "session.abort" {
					aborted = true
					f.has(append(slices.Clone(tc.history), textOf(6, "abort", `{}`))...)
				}
			}
			if _, err := f.s.reconciler.history(t.Context(), f, true); err != nil {
				t.Fatal(err)
			}
			if aborted != tc.aborts || tc.aborts && len(f.pending()) > 0 {
				t.Errorf("aborted is %v, %v are pending", aborted, f.pending())
			}
		})
	}
}

// TestLingeringPermissions: some CLI versions wait for permissions of turns that have ended, and list them also behind an abort.
func TestLingeringPermissions(t *testing.T) {
	t.Parallel()
	ended := []string{said(1), permission(2, "a"), textOf(3, "abort", `{}`)}
	for name, tc := range map[string]struct {
		version string
		history []string
		leaves  bool // the turn that the history ends in
		aborts  bool
		want    []string
	}{
		"an ended turn":                {version: "1.0.92", history: ended, aborts: true},
		"an ended turn, newer version": {version: "1.0.102", history: ended, want: []string{"a"}},
		"a turn that goes on":          {version: "1.0.92", history: ended[:2], want: []string{"a"}},
		"a turn that ends now":         {version: "1.0.92", history: ended[:2], leaves: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newStoryteller()
			f.version = tc.version
			f.takes(t, ended...)
			f.has(tc.history...)
			f.lists("a")
			f.replies["session.abort"] = `{}`
			aborted := false
			f.onCall = func(method string) { aborted = aborted || method == "session.abort" }
			if _, err := f.s.reconciler.history(t.Context(), f, !tc.leaves); err != nil {
				t.Fatal(err)
			}
			if _, _, err := f.s.reconciler.pending(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			if aborted != tc.aborts || !slices.Equal(f.pending(), tc.want) {
				t.Errorf("aborted is %v, pending are %v, want %v", aborted, f.pending(), tc.want)
			}
		})
	}
}
