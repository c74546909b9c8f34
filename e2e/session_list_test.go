package e2e

import (
	"context"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/quirks"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// list gives the sessions that fit, by id.
func (r *rig) list(filter *bridgev1.SessionFilter) map[string]*bridgev1.Session {
	r.t.Helper()
	found := map[string]*bridgev1.Session{}
	for s, err := range r.client.ListSessions(r.ctx, filter) {
		if err != nil {
			r.t.Fatalf("list: %v", err)
		}
		found[s.GetSessionId()] = s
	}
	return found
}

func TestSessionList(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	began := time.Now()
	open := r.session(r.options(func(c *cliv1.SessionConfig) { c.ClientName = proto.String("lister") }))
	open.ask("Look after the open one")
	stored := r.session(r.options())
	stored.ask("Look after the stored one")
	if err := stored.Disconnect(r.ctx); err != nil {
		t.Fatal(err)
	}
	all := r.list(nil)
	for _, s := range []*testSession{open, stored} {
		got := all[s.ID()]
		if got == nil {
			t.Errorf("session %q is not listed", s.ID())
			continue
		}
		start, modified := got.GetCreateTime().AsTime(), got.GetUpdateTime().AsTime()
		if start.Before(began.Add(-time.Second)) || start.After(time.Now()) || modified.Before(start.Add(-time.Second)) {
			t.Errorf("started %v, modified %v, but the test began %v", start, modified, began)
		}
		if got.GetIsRemote() {
			t.Error("a local session is listed as remote")
		}
		if got.GetContext().GetWorkingDirectory() != r.dir {
			t.Errorf("the working directory is %q, want %q", got.GetContext().GetWorkingDirectory(), r.dir)
		}
	}
	if got := all[open.ID()].GetSummary(); !strings.Contains(got, "open one") {
		t.Errorf("summary is %q", got)
	}
	if got := all[open.ID()].GetClientName(); got != "lister" {
		t.Errorf("client name is %q", got)
	}
	if got := all[open.ID()].GetState(); got != bridgev1.SessionState_SESSION_STATE_LOADED {
		t.Errorf("state of the open session is %v", got)
	}
	if got := all[stored.ID()].GetState(); got == bridgev1.SessionState_SESSION_STATE_LOADED {
		t.Errorf("state of the disconnected session is %v", got)
	}
}

func TestSessionListFiltered(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	repo := gitRepo(t)
	inRepo := r.session(r.options(func(c *cliv1.SessionConfig) { c.WorkingDirectory = proto.String(repo) }))
	inRepo.ask("hello")
	plain := r.session(r.options())
	plain.ask("hello")
	git := inRepo.ID()
	if r.has(quirks.IgnoresRepository) {
		git = ""
	}
	tests := []struct {
		name   string
		filter *bridgev1.SessionFilter
		want   string
	}{
		{"cwd", &bridgev1.SessionFilter{WorkingDirectory: r.dir}, plain.ID()},
		{"cwd of the other", &bridgev1.SessionFilter{WorkingDirectory: repo}, inRepo.ID()},
		{"git root", &bridgev1.SessionFilter{GitRoot: repo}, git},
		{"repository and cwd", &bridgev1.SessionFilter{Repository: "example/widgets", WorkingDirectory: repo}, git},
		{"branch and cwd", &bridgev1.SessionFilter{Branch: "trunk", WorkingDirectory: repo}, git},
		{"other branch", &bridgev1.SessionFilter{Branch: "main", WorkingDirectory: repo}, ""},
		{"nowhere", &bridgev1.SessionFilter{WorkingDirectory: r.dir + "/nowhere"}, ""},
	}
	for _, tt := range tests {
		var want []string
		if tt.want != "" {
			want = []string{tt.want}
		}
		if got := slices.Collect(maps.Keys(r.list(tt.filter))); !slices.Equal(got, want) {
			t.Errorf("%s: sessions %q are listed, want %q", tt.name, got, want)
		}
	}
	if git == "" {
		return
	}
	if got := r.list(&bridgev1.SessionFilter{GitRoot: repo})[git].GetContext(); got.GetRepository() != "example/widgets" ||
		got.GetBranch() != "trunk" || got.GetWorkingDirectory() != repo || got.GetGitRoot() != repo {
		t.Errorf("context is %v", got)
	}
}

// gitRepo makes a repository with a commit, a branch and a remote.
func gitRepo(t *testing.T) string {
	t.Helper()
	repo := realDir(t)
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch", "trunk"},
		{"-c", "user.name=e2e", "-c", "user.email=e2e@example.com", "commit", "--quiet", "--allow-empty", "--message", "first"},
		{"remote", "add", "origin", "https://github.com/example/widgets.git"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = repo
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	return repo
}

func TestSessionListPaged(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	want := map[string]bool{}
	for range 5 {
		s := r.session(r.options())
		s.ask("hello")
		want[s.ID()] = true
	}
	req := &bridgev1.ListSessionsRequest{Filter: &bridgev1.SessionFilter{WorkingDirectory: r.dir}, PageSize: 2}
	var sizes []int
	for {
		page, err := r.client.Sessions().ListSessions(r.ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(page.GetSessions()))
		for _, s := range page.GetSessions() {
			if !want[s.GetSessionId()] {
				t.Errorf("session %q is listed twice or is none of the test's", s.GetSessionId())
			}
			delete(want, s.GetSessionId())
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if len(want) > 0 || len(sizes) != 3 {
		t.Errorf("pages of %v, missing %v", sizes, want)
	}
	_, err := r.client.Sessions().ListSessions(r.ctx, &bridgev1.ListSessionsRequest{PageSize: 1001})
	if e := wantError(t, err, codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD); e.Field != "page_size" {
		t.Errorf("field is %q", e.Field)
	}
}

func TestSessionMetadata(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	s := r.session(r.options())
	s.ask("Tell me about cranes")
	got, err := s.Get(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got.GetSessionId() != s.ID() || got.GetContext().GetWorkingDirectory() != r.dir || got.GetModelId() != s.Info().GetModelId() ||
		got.GetCliVersion() != r.host.cli || got.GetTurnRunning() || len(got.GetParticipants()) != 1 ||
		!strings.Contains(got.GetSummary(), "cranes") || got.GetPosition().GetSeq() == 0 {
		t.Errorf("session is %v", got)
	}
	_, err = r.client.Session("no-such-session").Get(r.ctx)
	wantError(t, err, codes.NotFound, notFound)
}

// TestSessionLast has a CLI of its own: on a shared one others are the last.
func TestSessionLast(t *testing.T) {
	t.Parallel()
	r := newOwnRig(t, echo, hostConfig{})
	last := func() string {
		t.Helper()
		resp, err := r.client.Sessions().GetLastSession(r.ctx, &bridgev1.GetLastSessionRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetSessionId()
	}
	if got := last(); got != "" {
		t.Errorf("without sessions the last one is %q", got)
	}
	first := r.session(r.options())
	first.ask("hello")
	second := r.session(r.options())
	second.ask("hello")
	if got := last(); got != second.ID() {
		t.Errorf("last session is %q, want the second, %q (the first is %q)", got, second.ID(), first.ID())
	}
}

func TestSessionForeground(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	s := r.session(r.options())
	s.ask("hello")
	_, err := r.client.Sessions().SetForegroundSession(r.ctx, &bridgev1.SetForegroundSessionRequest{SessionId: s.ID()})
	if e := wantError(t, err, codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_SESSION_REFUSED); e.Message == "" {
		t.Error("the refusal has no words")
	}
	resp, err := r.client.Sessions().GetForegroundSession(r.ctx, &bridgev1.GetForegroundSessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if resp.GetSessionId() != "" {
		t.Errorf("a headless CLI shows session %q", resp.GetSessionId())
	}
	_, err = r.client.Sessions().SetForegroundSession(r.ctx, &bridgev1.SetForegroundSessionRequest{SessionId: "no-such-session"})
	wantError(t, err, codes.NotFound, notFound)
}

// changes gives the changes of one session, as WatchSessions tells them.
type changes struct {
	r    *rig
	next func() (*bridgev1.WatchSessionsResponse, error)
}

func (r *rig) watch(every time.Duration) *changes {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.ctx)
	r.t.Cleanup(cancel)
	stream, err := r.client.EventStreams().WatchSessions(ctx, &bridgev1.WatchSessionsRequest{
		HeartbeatInterval: durationpb.New(every),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return &changes{r: r, next: stream.Recv}
}

// until waits for a change of a session, and returns the changes of it until then.
func (c *changes) until(id string, want bridgev1.SessionChange) (last *bridgev1.Session) {
	c.r.t.Helper()
	var seen []string
	for {
		got, err := c.next()
		if err != nil {
			c.r.t.Fatalf("waiting for %v after %q: %v", want, seen, err)
		}
		if id == "" || got.GetSession().GetSessionId() == id {
			seen = append(seen, got.GetChange().String())
			if got.GetChange() == want {
				return got.GetSession()
			}
		}
	}
}

func TestSessionsWatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	before := r.session(r.options())
	w := r.watch(30 * time.Second)
	if got := w.until(before.ID(), bridgev1.SessionChange_SESSION_CHANGE_CURRENT); got.GetContext().GetWorkingDirectory() != r.dir {
		t.Errorf("current session is %v", got)
	}
	s := r.session(r.options())
	w.until(s.ID(), bridgev1.SessionChange_SESSION_CHANGE_CREATED)
	s.ask("Tell me about herons")
	if got := w.until(s.ID(), bridgev1.SessionChange_SESSION_CHANGE_UPDATED); got.GetState() != bridgev1.SessionState_SESSION_STATE_LOADED {
		t.Errorf("updated session is %v", got)
	}
	if err := s.Disconnect(r.ctx); err != nil {
		t.Fatal(err)
	}
	w.until(s.ID(), bridgev1.SessionChange_SESSION_CHANGE_DISCONNECTED)
	r.resume(r.client, s.ID(), copilot.SessionOptions{})
	if err := r.client.DeleteSession(r.ctx, s.ID()); err != nil {
		t.Fatal(err)
	}
	got := w.until(s.ID(), bridgev1.SessionChange_SESSION_CHANGE_DELETED)
	if !proto.Equal(got, &bridgev1.Session{SessionId: s.ID()}) {
		t.Errorf("deleted session is %v, want its id alone", got)
	}
}

func TestSessionsWatchHeartbeat(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	w := r.watch(time.Second)
	w.until("", bridgev1.SessionChange_SESSION_CHANGE_HEARTBEAT)
	w.until("", bridgev1.SessionChange_SESSION_CHANGE_HEARTBEAT)
}
