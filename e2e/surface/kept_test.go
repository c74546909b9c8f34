package surface

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Callers' settings in a session outlive the CLI process that had it.
func TestSettingsOutliveTheRuntime(t *testing.T) {
	t.Parallel()
	r := harness.NewOwnFixture(t, harness.Echo, harness.HostConfig{})
	r.Write("skills/greet/SKILL.md", "---\nname: greet\ndescription: Greets people.\n---\nSay hello.\n")
	s := r.Session(r.Options(func(c *cliv1.SessionConfig) {
		c.SkillDirectories = []string{filepath.Join(r.Dir, "skills")}
		c.CustomAgents = []*cliv1.CustomAgentConfig{{
			Name: "poet", Prompt: "You are a poet of note.", Description: proto.String("Writes."),
			DisplayName: proto.String("Poet"), // without it CLI 1.0.81 cannot read its own record
			Tools:       &cliv1.StringList{Items: []string{"*"}},
		}}
	}))
	s.Ask("hello")
	conn, id, extra := r.Conn(), s.ID(), harness.RealDir(t)
	skills, agent, mode := cliv1.NewSessionSkillsServiceClient(conn), cliv1.NewSessionAgentServiceClient(conn), cliv1.NewSessionModeServiceClient(conn)
	paths, permissions := cliv1.NewSessionPermissionsPathsServiceClient(conn), cliv1.NewSessionPermissionsServiceClient(conn)
	harness.Did(r, skills.Disable, &cliv1.SessionSkillsServiceDisableRequest{SessionId: id, Name: "greet"})
	harness.Did(r, agent.Select, &cliv1.SessionAgentServiceSelectRequest{SessionId: id, Name: "poet"})
	harness.Did(r, mode.Set,
		&cliv1.SessionModeServiceSetRequest{SessionId: id, Mode: cliv1.SessionMode_SESSION_MODE_PLAN})
	harness.Did(r, paths.Add, &cliv1.SessionPermissionsPathsServiceAddRequest{SessionId: id, Path: extra})
	harness.Did(r, permissions.SetMode,
		&cliv1.SessionPermissionsServiceSetModeRequest{SessionId: id,
			Mode: cliv1.PermissionMode_PERMISSION_MODE_ALLOW_ALL})
	harness.Did(r, cliv1.NewSessionNameServiceClient(conn).Set,
		&cliv1.SessionNameServiceSetRequest{SessionId: id, Name: "kept"})
	harness.Did(r, cliv1.NewSessionOptionsServiceClient(conn).Update,
		&cliv1.SessionOptionsServiceUpdateRequest{SessionId: id,
			ExcludedTools: &cliv1.StringList{Items: []string{"view"}}})

	verify := func(when string) {
		t.Helper()
		for _, one := range harness.Did(r, skills.List,
			&cliv1.SessionSkillsServiceListRequest{SessionId: id}).GetSkills() {
			check(t, one.GetName() != "greet" || !one.GetEnabled(), "%s: the skill is on", when)
		}
		check(t,
			harness.Did(r, agent.GetCurrent,
				&cliv1.SessionAgentServiceGetCurrentRequest{SessionId: id}).GetAgent().GetName() == "poet",
			"%s: the agent is another", when)
		check(t,
			harness.Did(r, mode.Get,
				&cliv1.SessionModeServiceGetRequest{SessionId: id}).GetValue() == cliv1.SessionMode_SESSION_MODE_PLAN,
			"%s: the mode is another", when)
		allowed := harness.Did(r, paths.IsPathWithinAllowedDirectories,
			&cliv1.SessionPermissionsPathsServiceIsPathWithinAllowedDirectoriesRequest{SessionId: id,
				Path: filepath.Join(extra, "x")})
		check(t, allowed.GetAllowed(), "%s: the path is not allowed", when)
		name := harness.Did(r, cliv1.NewSessionNameServiceClient(conn).Get,
			&cliv1.SessionNameServiceGetRequest{SessionId: id})
		check(t, name.GetName() == "kept", "%s: the name is %v", when, name)
		check(t,
			harness.Did(r, permissions.GetMode,
				&cliv1.SessionPermissionsServiceGetModeRequest{SessionId: id}).GetMode() == cliv1.PermissionMode_PERMISSION_MODE_ALLOW_ALL,
			"%s: not everything is approved", when)
		s.Ask("hello " + when)
		last := r.LastModelRequest()
		check(t, strings.Contains(string(last.Body), "You are a poet of note."),
			"%s: the model is not told of the agent", when)
		for _, tool := range last.Tools {
			check(t, tool.Name != "view", "%s: the model has an excluded tool", when)
		}
	}
	verify("before")
	// A participant's coming changes what is handled: a warm resume.
	guest, err := r.Client.JoinSession(r.Ctx, id, copilot.SessionOptions{
		OnUserInput: func(context.Context, *copilot.UserInputRequest) (*copilot.UserInputAnswer, error) {
			return nil, copilot.ErrAbstain
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	verify("with a guest")
	if err := guest.Close(); err != nil {
		t.Fatal(err)
	}
	verify("without the guest")
	list, err := r.Client.Runtimes().ListRuntimes(r.Ctx, &bridgev1.ListRuntimesRequest{})
	if err != nil || len(list.GetRuntimes()) == 0 {
		t.Fatal(list, err)
	}
	if err := syscall.Kill(int(list.GetRuntimes()[0].GetPid()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitRestarted(r)
	verify("after")
}

// waitRestarted waits until the server tells that a runtime has ended.
func waitRestarted(r *harness.Fixture) {
	r.T.Helper()
	for {
		list, err := r.Client.Runtimes().ListRuntimes(r.Ctx, &bridgev1.ListRuntimesRequest{})
		if err != nil {
			r.T.Fatal(err)
		}
		for _, rt := range list.GetRuntimes() {
			if rt.GetState() == bridgev1.RuntimeState_RUNTIME_STATE_DOWN {
				return
			}
		}
	}
}
