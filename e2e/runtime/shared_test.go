package runtime

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// awaitRuntimes waits until so many runtimes work. No event reports their coming and going, so that one has to look.
func awaitRuntimes(st *harness.Scripted, n int) []*bridgev1.RuntimeInfo {
	st.T.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		list := st.Ready()
		if len(list) == n {
			return list
		}
		select {
		case <-tick.C:
		case <-st.Ctx.Done():
			st.T.Fatalf("%d runtimes work, want %d: %v", len(list), n, list)
		}
	}
}

// kill kills a runtime.
func kill(t *testing.T, rt *bridgev1.RuntimeInfo) {
	t.Helper()
	if err := syscall.Kill(int(rt.GetPid()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// loaded is how many sessions each runtime has, by shard.
func loaded(list []*bridgev1.RuntimeInfo) []int32 {
	out := make([]int32, len(list))
	for _, rt := range list {
		out[rt.GetIndex()] = rt.GetLoadedSessions()
	}
	return out
}

// TestSessionsShareRuntimes up to a number; then there is another process. All work, also
// after each process was killed.
func TestSessionsShareRuntimes(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: func(c *app.Config) { c.MaxSessionsPerRuntime = 2 }})
	var sessions []*copilot.Session
	var ids []string
	for range 5 {
		s := st.Create(copilot.SessionOptions{})
		sessions, ids = append(sessions, s), append(ids, s.ID())
	}
	list := st.Ready()
	if len(list) != 3 || !slices.Equal(loaded(list), []int32{2, 2, 1}) {
		t.Fatalf("the runtimes are %v", list)
	}
	for _, rt := range list {
		if rt.GetProfileId() == "" || rt.GetProfileId() != list[0].GetProfileId() {
			t.Errorf("profile %q, want that of the others: %q", rt.GetProfileId(), list[0].GetProfileId())
		}
	}
	for _, s := range sessions {
		if out := st.Say(s, "before"); out.Text() != "You said: before" {
			t.Errorf("session %s says %q", s.ID(), out.Text())
		}
		st.Written(s)
	}
	frames := make([]*harness.CallbackWatch, len(ids))
	for i, id := range ids {
		frames[i] = st.Callbacks(id)
	}
	for _, rt := range list {
		kill(t, rt)
	}
	for _, f := range frames {
		f.Restarted()
	}
	for _, s := range sessions {
		st.Say(s, "after")
		if texts := strings.Join(harness.UserTexts(st), " "); !strings.Contains(texts, "before") {
			t.Errorf("session %s has forgotten: the model was told %q", s.ID(), texts)
		}
	}
	if list := awaitRuntimes(st, 3); !slices.Equal(loaded(list), []int32{2, 2, 1}) {
		t.Errorf("after the kill the runtimes are %v", list)
	}
}

// TestIdleRuntimeEnds: a runtime without sessions is ended, the first is not.
func TestIdleRuntimeEnds(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: func(c *app.Config) {
		c.MaxSessionsPerRuntime, c.RuntimeIdle = 1, 200*time.Millisecond
	}})
	first := st.Create(copilot.SessionOptions{})
	second := st.Create(copilot.SessionOptions{})
	other := st.Create(copilot.SessionOptions{RuntimeProfile: &bridgev1.RuntimeProfile{LogLevel: "debug"}})
	if list := st.Ready(); len(list) != 3 {
		t.Fatalf("the runtimes are %v", list)
	}
	st.Say(second, "something to resume")
	for _, s := range []*copilot.Session{first, second, other} {
		if err := s.Disconnect(st.Ctx); err != nil {
			t.Fatal(err)
		}
	}
	if left := awaitRuntimes(st, 1)[0]; left.GetIndex() != 0 || left.GetLoadedSessions() != 0 {
		t.Errorf("what is left is %v", left)
	}
	st.Say(st.Reopen(second.ID(), copilot.SessionOptions{Config: st.Config()}), "again")
	if texts := strings.Join(harness.UserTexts(st), " "); !strings.Contains(texts, "something to resume") {
		t.Errorf("the model was told %q", texts)
	}
}

// TestRuntimesAreBounded: one more than is allowed is refused.
func TestRuntimesAreBounded(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: func(c *app.Config) { c.MaxRuntimes = 1 }})
	_, err := st.Client.CreateSession(st.Ctx, copilot.SessionOptions{
		Config: st.Config(), RuntimeProfile: &bridgev1.RuntimeProfile{LogLevel: "debug"},
	})
	harness.WantError(t, err, codes.ResourceExhausted, bridgev1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED)
	st.Say(st.Create(copilot.SessionOptions{}), "the first one works")
}

// TestRuntimeProfile gives a session a separate kind of process: its home, its environment, its working directory.
// Another session is not touched by it.
func TestRuntimeProfile(t *testing.T) {
	t.Parallel()
	named, own, work := harness.RealDir(t), harness.RealDir(t), harness.RealDir(t)
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: func(c *app.Config) {
		c.ProfileFields = []string{"env", "home", "working_directory", "user_home"}
		c.Homes = map[string]string{"team": named}
	}}, harness.OnUser("look", harness.Call("bash", harness.Shell("echo $FLAVOUR $HOME; pwd"))),
		harness.OnResult("bash", harness.Say("{{tool_result}}")))
	plain := st.Create(copilot.SessionOptions{OnPermission: copilot.ApproveAll})
	st.Say(plain, "plain")
	config := st.Config()
	config.WorkingDirectory = nil
	profile := &bridgev1.RuntimeProfile{Home: own, WorkingDirectory: work, UserHome: own,
		Env: map[string]string{"FLAVOUR": "vanilla"}}
	s := st.Create(copilot.SessionOptions{Config: config, RuntimeProfile: profile, OnPermission: copilot.ApproveAll})
	if out := st.Say(s, "look"); !strings.Contains(out.Text(), "vanilla "+own) ||
		!strings.Contains(out.Text(), work) {
		t.Errorf("its shell has %q", out.Text())
	}
	if out := st.Say(plain, "look"); strings.Contains(out.Text(), "vanilla") {
		t.Errorf("the other's shell has %q", out.Text())
	}
	if _, err := os.Stat(filepath.Join(own, "session-state", s.ID())); err != nil {
		t.Errorf("the session is not in its home: %v", err)
	}
	byName := st.Create(copilot.SessionOptions{RuntimeProfile: &bridgev1.RuntimeProfile{HomeName: "team"}})
	st.Say(byName, "hello")
	if _, err := os.Stat(filepath.Join(named, "session-state", byName.ID())); err != nil {
		t.Errorf("the session is not in the home named: %v", err)
	}
	wantListed(st, "every home", nil, plain.ID(), s.ID(), byName.ID())

	// Once its use is over, its home still has it, for who names it.
	if err := byName.Disconnect(st.Ctx); err != nil {
		t.Fatal(err)
	}
	wantListed(st, "the home named", &bridgev1.RuntimeProfile{HomeName: "team"}, byName.ID())
	again := st.Reopen(byName.ID(), copilot.SessionOptions{Config: st.Config()})
	st.Say(again, "still there?")
	if texts := strings.Join(harness.UserTexts(st), " "); !strings.Contains(texts, "hello") {
		t.Errorf("the model was told %q", texts)
	}
	if err := again.Delete(st.Ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(named, "session-state", byName.ID(), "events.jsonl")); err == nil {
		t.Error("the session's history is there after it was deleted")
	}
}

// wantListed checks that a home has the sessions.
func wantListed(st *harness.Scripted, what string, profile *bridgev1.RuntimeProfile, ids ...string) {
	st.T.Helper()
	list, err := st.Client.Sessions().ListSessions(st.Ctx, &bridgev1.ListSessionsRequest{RuntimeProfile: profile})
	if err != nil {
		st.T.Fatal(err)
	}
	for _, id := range ids {
		if !slices.ContainsFunc(list.GetSessions(), func(s *bridgev1.Session) bool { return s.GetSessionId() == id }) {
			st.T.Errorf("%s lacks session %s", what, id)
		}
	}
}

// TestRuntimeProfileRefused: what the policy does not allow, and what makes no sense.
func TestRuntimeProfileRefused(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	forbidden, invalid := bridgev1.ErrorReason_ERROR_REASON_FORBIDDEN, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD
	for name, tc := range map[string]struct {
		profile *bridgev1.RuntimeProfile
		reason  bridgev1.ErrorReason
		field   string
	}{
		"home":        {&bridgev1.RuntimeProfile{Home: "/tmp"}, forbidden, "home"},
		"environment": {&bridgev1.RuntimeProfile{Env: map[string]string{"A": "b"}}, forbidden, "env"},
		"token":       {&bridgev1.RuntimeProfile{GithubToken: "t"}, forbidden, "github_token"},
		"login":       {&bridgev1.RuntimeProfile{UseLogin: proto.Bool(false)}, forbidden, "use_login"},
		"home's name": {&bridgev1.RuntimeProfile{HomeName: "none"}, invalid, "home_name"},
		"log level":   {&bridgev1.RuntimeProfile{LogLevel: "loud"}, invalid, "log_level"},
		"no folder": {&bridgev1.RuntimeProfile{
			SessionFs: &bridgev1.SessionFileSystem{InitialDirectory: "/"},
		}, invalid, "session_fs.state_path"},
		"folder": {&bridgev1.RuntimeProfile{
			SessionFs: &bridgev1.SessionFileSystem{InitialDirectory: "here", StatePath: "/s"},
		}, invalid, "session_fs.initial_directory"},
		"key": {&bridgev1.RuntimeProfile{
			ModelInference: &bridgev1.ModelInference{Key: strings.Repeat("k", 129)},
		}, invalid, "model_inference.key"},
	} {
		t.Run(name, func(t *testing.T) { // not in parallel: they share the time of the session's context
			code := codes.InvalidArgument
			if tc.reason == forbidden {
				code = codes.PermissionDenied
			}
			_, err := st.Client.CreateSession(st.Ctx, copilot.SessionOptions{RuntimeProfile: tc.profile})
			harness.WantField(t, err, code, tc.reason, "start.create.runtime_profile."+tc.field)
			_, err = st.Client.Runtimes().Ping(st.Ctx, &bridgev1.PingRequest{RuntimeProfile: tc.profile})
			harness.WantField(t, copilot.FromError(err), code, tc.reason, "runtime_profile."+tc.field)
		})
	}
	s := st.Create(copilot.SessionOptions{})
	_, err := st.Client.ResumeSession(st.Ctx, s.ID(),
		copilot.SessionOptions{RuntimeProfile: &bridgev1.RuntimeProfile{LogLevel: "debug"}})
	harness.WantField(t, err, codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_SESSION_BUSY,
		"start.resume.runtime_profile")
	st.Say(s, "it goes on as it was")
}
