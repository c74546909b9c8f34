package session

import (
	"context"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/quirks"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// list gives the sessions that fit, by id.
func list(r *harness.Fixture, filter *bridgev1.SessionFilter) map[string]*bridgev1.Session {
	r.T.Helper()
	found := map[string]*bridgev1.Session{}
	for s, err := range r.Client.ListSessions(r.Ctx, copilot.ListOptions{Filter: filter}) {
		if err != nil {
			r.T.Fatalf("list: %v", err)
		}
		found[s.ID] = s.Proto
	}
	return found
}

func TestSessionList(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	began := time.Now()
	open := r.Session(r.Options(func(c *cliv1.SessionConfig) { c.ClientName = proto.String("lister") }))
	open.Ask("Look after the open one")
	stored := r.Session(r.Options())
	stored.Ask("Look after the stored one")
	if err := stored.Disconnect(r.Ctx); err != nil {
		t.Fatal(err)
	}
	all := list(r, nil)
	for _, s := range []*harness.TestSession{open, stored} {
		got := all[s.ID()]
		if got == nil {
			t.Errorf("session %q is not listed", s.ID())
			continue
		}
		start, modified := got.GetCreateTime().AsTime(), got.GetUpdateTime().AsTime()
		if start.Before(began.Add(-time.Second)) || start.After(time.Now()) ||
			modified.Before(start.Add(-time.Second)) {
			t.Errorf("started %v, modified %v, but the test began %v", start, modified, began)
		}
		if got.GetIsRemote() {
			t.Error("a local session is listed as remote")
		}
		if got.GetContext().GetWorkingDirectory() != r.Dir {
			t.Errorf("the working directory is %q, want %q", got.GetContext().GetWorkingDirectory(), r.Dir)
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

// opened has a new session with a turn, and returns its id.
func opened(d *harness.Daemon) string {
	d.T.Helper()
	made, err := d.Client.Sessions().CreateSession(d.Ctx, &bridgev1.CreateSessionRequest{Config: d.Config()})
	if err != nil {
		d.T.Fatal(err)
	}
	id := made.GetSession().GetSessionId()
	d.SayTo(id, "hello")
	return id
}

// TestSessionListWithoutHistory has two servers on one home, each with a data directory of its own: for each of them,
// the sessions of the other are those of a person at a terminal.
func TestSessionListWithoutHistory(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	d := harness.NewDaemon(st)
	terminal := harness.NewDaemon(st, "--home", filepath.Join(d.Root, "home"))
	own, stored, theirs := opened(d), opened(d), opened(terminal)
	if err := d.Client.Session(stored).Disconnect(d.Ctx); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		for history, want := range map[bool][]string{false: {own, stored}, true: {own, stored, theirs}} {
			var got []string
			for s, err := range d.Client.ListSessions(d.Ctx, copilot.ListOptions{IncludeHistory: history}) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, s.ID)
			}
			if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				t.Errorf("%s: sessions %q are listed, want %q (history: %t)", when, got, want, history)
			}
		}
	}
	check("at first")
	d.Stop(syscall.SIGTERM)
	d.Start()
	check("after a restart")
}

func TestSessionListFiltered(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	repo := gitRepo(t)
	inRepo := r.Session(r.Options(func(c *cliv1.SessionConfig) { c.WorkingDirectory = proto.String(repo) }))
	inRepo.Ask("hello")
	plain := r.Session(r.Options())
	plain.Ask("hello")
	git := inRepo.ID()
	if r.Has(quirks.IgnoresRepository) {
		git = ""
	}
	tests := []struct {
		name   string
		filter *bridgev1.SessionFilter
		want   string
	}{
		{"cwd", &bridgev1.SessionFilter{WorkingDirectory: r.Dir}, plain.ID()},
		{"cwd of the other", &bridgev1.SessionFilter{WorkingDirectory: repo}, inRepo.ID()},
		{"git root", &bridgev1.SessionFilter{GitRoot: repo}, git},
		{"repository and cwd", &bridgev1.SessionFilter{Repository: "example/widgets", WorkingDirectory: repo}, git},
		{"branch and cwd", &bridgev1.SessionFilter{Branch: "trunk", WorkingDirectory: repo}, git},
		{"other branch", &bridgev1.SessionFilter{Branch: "main", WorkingDirectory: repo}, ""},
		{"nowhere", &bridgev1.SessionFilter{WorkingDirectory: r.Dir + "/nowhere"}, ""},
	}
	for _, tt := range tests {
		var want []string
		if tt.want != "" {
			want = []string{tt.want}
		}
		if got := slices.Collect(maps.Keys(list(r, tt.filter))); !slices.Equal(got, want) {
			t.Errorf("%s: sessions %q are listed, want %q", tt.name, got, want)
		}
	}
	if git == "" {
		return
	}
	if got := list(r,
		&bridgev1.SessionFilter{GitRoot: repo})[git].GetContext(); got.GetRepository() != "example/widgets" ||
		got.GetBranch() != "trunk" || got.GetWorkingDirectory() != repo || got.GetGitRoot() != repo {
		t.Errorf("context is %v", got)
	}
}

// gitRepo makes a repository with a commit, a branch and a remote.
func gitRepo(t *testing.T) string {
	t.Helper()
	repo := harness.RealDir(t)
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch", "trunk"},
		{"-c", "user.name=e2e", "-c", "user.email=e2e@example.com", "commit", "--quiet", "--allow-empty", "--message",
			"first"},
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
	r := harness.NewFixture(t, harness.Echo)
	want := map[string]bool{}
	for range 5 {
		s := r.Session(r.Options())
		s.Ask("hello")
		want[s.ID()] = true
	}
	req := &bridgev1.ListSessionsRequest{Filter: &bridgev1.SessionFilter{WorkingDirectory: r.Dir}, PageSize: 2}
	var sizes []int
	for {
		page, err := r.Client.Sessions().ListSessions(r.Ctx, req)
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
	_, err := r.Client.Sessions().ListSessions(r.Ctx, &bridgev1.ListSessionsRequest{PageSize: 1001})
	harness.WantField(t, err, codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD, "page_size")
}

func TestSessionMetadata(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	s.Ask("Tell me about cranes")
	got, err := s.Get(r.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != s.ID() || got.Proto.GetContext().GetWorkingDirectory() != r.Dir ||
		got.Model != s.Info().Model ||
		got.Proto.GetCliVersion() != r.Host.CLI || got.Proto.GetTurnRunning() || len(got.Proto.GetParticipants()) != 1 ||
		!strings.Contains(got.Proto.GetSummary(), "cranes") || got.Proto.GetPosition().GetSeq() == 0 {
		t.Errorf("session is %v", got)
	}
	_, err = r.Client.Session("no-such-session").Get(r.Ctx)
	harness.WantError(t, err, codes.NotFound, notFound)
}

// TestSessionLast has a separate CLI: on a shared one other sessions are the last.
func TestSessionLast(t *testing.T) {
	harness.SkipAtEntry(t, "each replica's CLI has a last session")
	t.Parallel()
	r := harness.NewOwnFixture(t, harness.Echo, harness.HostConfig{})
	last := func() string {
		t.Helper()
		resp, err := r.Client.Sessions().GetLastSession(r.Ctx, &bridgev1.GetLastSessionRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetSessionId()
	}
	if got := last(); got != "" {
		t.Errorf("without sessions the last one is %q", got)
	}
	first := r.Session(r.Options())
	first.Ask("hello")
	second := r.Session(r.Options())
	second.Ask("hello")
	if got := last(); got != second.ID() {
		t.Errorf("last session is %q, want the second, %q (the first is %q)", got, second.ID(), first.ID())
	}
}

func TestSessionForeground(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	s.Ask("hello")
	_, err := r.Client.Sessions().SetForegroundSession(r.Ctx, &bridgev1.SetForegroundSessionRequest{SessionId: s.ID()})
	if e := harness.WantError(t, err, codes.FailedPrecondition,
		bridgev1.ErrorReason_ERROR_REASON_SESSION_REFUSED); e.Message == "" {
		t.Error("the refusal has no words")
	}
	resp, err := r.Client.Sessions().GetForegroundSession(r.Ctx, &bridgev1.GetForegroundSessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if resp.GetSessionId() != "" {
		t.Errorf("a headless CLI shows session %q", resp.GetSessionId())
	}
	_, err = r.Client.Sessions().SetForegroundSession(r.Ctx,
		&bridgev1.SetForegroundSessionRequest{SessionId: "no-such-session"})
	harness.WantError(t, err, codes.NotFound, notFound)
}

// changes gives the changes of one session, as WatchSessions tells them.
type changes struct {
	r    *harness.Fixture
	next func() (*bridgev1.WatchSessionsResponse, error)
}

func watch(r *harness.Fixture, every time.Duration) *changes {
	r.T.Helper()
	ctx, cancel := context.WithCancel(r.Ctx)
	r.T.Cleanup(cancel)
	stream, err := r.Client.EventStreams().WatchSessions(ctx, &bridgev1.WatchSessionsRequest{
		HeartbeatInterval: durationpb.New(every),
	})
	if err != nil {
		r.T.Fatal(err)
	}
	if _, err := stream.Header(); err != nil { // now the watch is registered
		r.T.Fatal(err)
	}
	return &changes{r: r, next: stream.Recv}
}

// until waits for a change of a session, and returns the changes of it until then.
func (c *changes) until(id string, want bridgev1.SessionChange) (last *bridgev1.Session) {
	c.r.T.Helper()
	var seen []string
	for {
		got, err := c.next()
		if err != nil {
			c.r.T.Fatalf("waiting for %v after %q: %v", want, seen, err)
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
	r := harness.NewFixture(t, harness.Echo)
	before := r.Session(r.Options())
	w := watch(r, 30*time.Second)
	if got := w.until(before.ID(),
		bridgev1.SessionChange_SESSION_CHANGE_CURRENT); got.GetContext().GetWorkingDirectory() != r.Dir {
		t.Errorf("current session is %v", got)
	}
	s := r.Session(r.Options())
	w.until(s.ID(), bridgev1.SessionChange_SESSION_CHANGE_CREATED)
	s.Ask("Tell me about herons")
	for runs := true; runs; { // the last change shows that the turn has ended
		got := w.until(s.ID(), bridgev1.SessionChange_SESSION_CHANGE_UPDATED)
		if runs = got.GetTurnRunning(); got.GetState() != bridgev1.SessionState_SESSION_STATE_LOADED {
			t.Errorf("updated session is %v", got)
		}
	}
	if err := s.Disconnect(r.Ctx); err != nil {
		t.Fatal(err)
	}
	w.until(s.ID(), bridgev1.SessionChange_SESSION_CHANGE_DISCONNECTED)
	r.Resume(r.Client, s.ID(), copilot.SessionOptions{})
	if err := r.Client.DeleteSession(r.Ctx, s.ID()); err != nil {
		t.Fatal(err)
	}
	got := w.until(s.ID(), bridgev1.SessionChange_SESSION_CHANGE_DELETED)
	if !proto.Equal(got, &bridgev1.Session{SessionId: s.ID()}) {
		t.Errorf("deleted session is %v, want its id alone", got)
	}
}

func TestSessionsWatchHeartbeat(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	w := watch(r, time.Second)
	w.until("", bridgev1.SessionChange_SESSION_CHANGE_HEARTBEAT)
	w.until("", bridgev1.SessionChange_SESSION_CHANGE_HEARTBEAT)
}
