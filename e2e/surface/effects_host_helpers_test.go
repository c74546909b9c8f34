package surface

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// The samples of what all sessions of a CLI share.

func sampleSettings(t *testing.T, r *sample) {
	settings := cliv1.NewUserSettingsServiceClient(r.conn)
	harness.Did(r.Fixture, settings.Set, &cliv1.UserSettingsServiceSetRequest{SettingsJson: `{"theme":"dark"}`})
	text, err := os.ReadFile(filepath.Join(r.Host.FrontHome, "settings.json"))
	check(t, err == nil && strings.Contains(string(text), "dark"), "settings.json is %s, %v", text, err)
	got := harness.Did(r.Fixture, settings.Get, &cliv1.UserSettingsServiceGetRequest{})
	check(t, got.GetSettings()["theme"] != nil && len(got.GetSettings()) > 5, "settings: %v", got)
}

// samplePlugins: a marketplace is known while it is added, and a plugin of it is installed
// until it is not: of one in a local folder the CLI then remembers that it is off.
func samplePlugins(t *testing.T, r *sample) {
	plugins, markets := cliv1.NewPluginsServiceClient(r.conn), cliv1.NewPluginsMarketplacesServiceClient(r.conn)
	r.Write("market/.github/plugin/marketplace.json",
		`{"name":"local-market","owner":{"name":"me"},"plugins":[{"name":"greeter","source":"./greeter","description":"Greets.","version":"1.0.0"}]}`)
	r.Write("market/greeter/plugin.json",
		`{"name":"greeter","description":"Greets.","version":"1.0.0","skills":"skills"}`)
	r.Write("market/greeter/skills/greet/SKILL.md", "---\nname: greet\ndescription: Greets people.\n---\nSay hello.\n")
	known := func() bool {
		list := harness.Did(r.Fixture, markets.List, &cliv1.PluginsMarketplacesServiceListRequest{})
		return slices.ContainsFunc(list.GetMarketplaces(),
			func(m *cliv1.MarketplaceInfo) bool { return m.GetName() == "local-market" })
	}
	listed := func() []*cliv1.InstalledPluginInfo {
		return harness.Did(r.Fixture, plugins.List, &cliv1.PluginsServiceListRequest{}).GetPlugins()
	}
	check(t, !known() && len(listed()) == 0, "there is something at the beginning: %v", listed())
	harness.Did(r.Fixture, markets.Add,
		&cliv1.PluginsMarketplacesServiceAddRequest{Source: filepath.Join(r.Dir, "market")})
	check(t, known(), "the marketplace is not known")
	offers := harness.Did(r.Fixture, markets.Browse,
		&cliv1.PluginsMarketplacesServiceBrowseRequest{Name: "local-market"}).GetPlugins()
	check(t, len(offers) == 1 && offers[0].GetName() == "greeter", "the marketplace has %v", offers)
	harness.Did(r.Fixture, plugins.Install, &cliv1.PluginsServiceInstallRequest{Source: "greeter@local-market"})
	on := listed()
	check(t, len(on) == 1 && on[0].GetName() == "greeter" && on[0].GetEnabled(), "installed: %v", on)
	harness.Did(r.Fixture, plugins.Disable,
		&cliv1.PluginsServiceDisableRequest{Names: []string{"greeter@local-market"}})
	off := listed()
	check(t, len(off) == 1 && !off[0].GetEnabled(), "disabled: %v", off)
	harness.Did(r.Fixture, plugins.Enable, &cliv1.PluginsServiceEnableRequest{Names: []string{"greeter@local-market"}})
	check(t, listed()[0].GetEnabled(), "enabled: %v", listed())
	harness.Did(r.Fixture, plugins.Uninstall, &cliv1.PluginsServiceUninstallRequest{Name: "greeter@local-market"})
	check(t, !slices.ContainsFunc(listed(), (*cliv1.InstalledPluginInfo).GetEnabled), "uninstalled: %v", listed())
	text, err := os.ReadFile(filepath.Join(r.Host.FrontHome, "settings.json"))
	check(t, err == nil && strings.Contains(string(text), `"greeter@local-market": false`), "settings.json is %s, %v",
		text, err)
	harness.Did(r.Fixture, markets.Remove, &cliv1.PluginsMarketplacesServiceRemoveRequest{Name: "local-market"})
	check(t, !known(), "the marketplace is known yet")
}

func sampleSessions(t *testing.T, r *sample) {
	harness.SkipAtEntry(t, "each replica's CLI lists its own")
	s := r.Session(r.Options())
	s.Ask("hello")
	sessions := cliv1.NewSessionsServiceClient(r.conn)
	harness.Did(r.Fixture, sessions.Save, &cliv1.SessionsServiceSaveRequest{SessionId: s.ID()})
	list := harness.Did(r.Fixture, sessions.List, &cliv1.SessionsServiceListRequest{})
	check(t, len(list.GetSessions()) == 1, "sessions: %v", list)
	fork := harness.Did(r.Fixture, sessions.Fork, &cliv1.SessionsServiceForkRequest{SessionId: s.ID()})
	check(t,
		len(harness.ReadRecord(t,
			filepath.Join(r.Host.Home, "session-state", fork.GetSessionId(), "events.jsonl"))) > 0,
		"the fork has no history")
	sizes := harness.Did(r.Fixture, sessions.GetSizes, &cliv1.SessionsServiceGetSizesRequest{}).GetSizes()
	check(t, sizes[s.ID()] > 0 && sizes[fork.GetSessionId()] > 0, "sizes: %v", sizes)
	harness.Did(r.Fixture, sessions.CheckInUse, &cliv1.SessionsServiceCheckInUseRequest{SessionIds: []string{s.ID()}})
	harness.Did(r.Fixture, sessions.BulkDelete,
		&cliv1.SessionsServiceBulkDeleteRequest{SessionIds: []string{s.ID(), fork.GetSessionId()}})
	_, err := os.Stat(filepath.Join(r.Host.Home, "session-state", s.ID()))
	check(t, os.IsNotExist(err), "the deleted session is there: %v", err)
	_, err = s.Get(r.Ctx)
	harness.WantError(t, err, codes.NotFound, bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
}

func sampleServer(t *testing.T, r *sample) {
	pong := harness.Did(r.Fixture, cliv1.NewServerServiceClient(r.conn).Ping,
		&cliv1.ServerServicePingRequest{Message: proto.String("hello")})
	check(t, strings.Contains(pong.GetMessage(), "hello"), "ping: %v", pong)
	status := harness.Did(r.Fixture, cliv1.NewStatusServiceClient(r.conn).Get, &cliv1.StatusServiceGetRequest{})
	check(t, status.GetProtocolVersion() == 3, "status: %v", status)
	auth := harness.Did(r.Fixture, cliv1.NewAuthServiceClient(r.conn).GetStatus, &cliv1.AuthServiceGetStatusRequest{})
	check(t, !auth.GetIsAuthenticated(), "auth: %v", auth)
	tools := harness.Did(r.Fixture, cliv1.NewToolsServiceClient(r.conn).List, &cliv1.ToolsServiceListRequest{})
	check(t, slices.ContainsFunc(tools.GetTools(), func(t *cliv1.Tool) bool { return t.GetName() == "bash" }),
		"tools: %d", len(tools.GetTools()))
	r.Write("AGENTS.md", "Be kind.\n")
	found := harness.Did(r.Fixture, cliv1.NewInstructionsServiceClient(r.conn).Discover,
		&cliv1.InstructionsServiceDiscoverRequest{ProjectPaths: []string{r.Dir}})
	check(t,
		slices.ContainsFunc(found.GetSources(),
			func(s *cliv1.InstructionSource) bool { return strings.Contains(s.GetContent(), "Be kind.") }),
		"instructions: %v", found)
}
