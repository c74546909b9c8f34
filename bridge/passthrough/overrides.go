package passthrough

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// methodRule is a method of the CLI that the bridge does not simply pass on.
type methodRule struct {
	// method is its name, or with a dot at the end what the names of a family begin with.
	method string
	// why says what would happen if it were passed on.
	why string
	// run is the bridge's own way of doing it; nil refuses it.
	run func(svc *Service, ctx context.Context, c *call) (json.RawMessage, error)
	// instead is what to call in the place of a method that is refused.
	instead string
	// exact is how it is done for callers who want the CLI's own behaviour, if it is
	// refused to others.
	exact func(svc *Service, ctx context.Context, c *call) (json.RawMessage, error)
	// singleClient says that this is so only if the CLI's processes serve such callers alone
	// (Config.SingleClient).
	singleClient bool
}

// inSession returns how a row does a method in a session that the caller may use.
func inSession(
	do func(svc *Service, ctx context.Context, s *session.Session, c *call) (json.RawMessage, error),
) func(*Service, context.Context, *call) (json.RawMessage, error) {
	return func(svc *Service, ctx context.Context, c *call) (json.RawMessage, error) {
		s, err := svc.cfg.Sessions.Open(ctx, c.id)
		if err != nil {
			return nil, err
		}
		return do(svc, ctx, s, c)
	}
}

// Words that several rows say.
const (
	whyTurn     = "the bridge follows the turn, loads the session, and refuses new prompts while the server drains"
	whyAnswer   = "the bridge accepts the first answer only and reports it to all participants"
	whyProcess  = "the method would change all sessions of the CLI process, including sessions of other callers"
	whyHost     = "the bridge is the CLI's host, and messages to the host contain credentials"
	whyBehind   = "the bridge would not know that the session is opened or closed, and could not keep its guarantees"
	whyStops    = "the method stops the work of all participants in the session"
	whyConn     = "the method affects the connection, which all callers share"
	whyKept     = "the CLI loses the setting when the session is unloaded, so the bridge stores it and sets it again"
	whyWait     = "the CLI has a small limit for waiting calls, so the bridge waits instead"
	whyLifetime = "the bridge manages the session's configuration, journal and participants"
)

// overrides is the one table of methods that the bridge handles itself or refuses, for
// copilot.cli.v1 and for RawService. All others are passed on as they are. docs/methods.md
// shows it; a test compares the two.
var overrides = []methodRule{
	{method: "connect", why: "the bridge has already connected, and a second handshake would change the agreed protocol"},
	{method: "runtime.", why: "the bridge owns its CLI processes", instead: "none: the server ends its runtimes when it stops"},
	{method: "host.", why: whyHost, exact: (*Service).passOn, singleClient: true},
	{method: "sessionFs.", why: whyProcess, instead: "SessionService.CreateSession with a runtime_profile"},
	{method: "llmInference.", why: whyProcess, instead: "SessionService.CreateSession with a runtime_profile"},
	{method: "registerExtensionLaunchProvider", why: whyConn, exact: (*Service).passOn, singleClient: true},
	{method: "sessions.setAdditionalPlugins", why: whyProcess, exact: (*Service).passOn, singleClient: true},
	{method: "sessions.registerExtensionToolsOnSession", why: whyConn,
		instead: "CallbackService.Attach with tools", exact: (*Service).passOn, singleClient: true},
	{method: "sessions.open", why: whyBehind,
		instead: "SessionService.CreateSession or ResumeSession", exact: (*Service).passOn, singleClient: true},
	{method: "sessions.close", why: whyBehind,
		instead: "SessionService.DisconnectSession", exact: (*Service).closeSession, singleClient: true},
	{method: "sessions.connect", why: whyBehind,
		instead: "SessionService.ResumeSession", exact: (*Service).passOn, singleClient: true},
	{method: "sessions.releaseLock", why: "the lock prevents other processes from forking the session's history",
		exact: (*Service).passOn, singleClient: true},
	{method: "sessions.delete", why: whyBehind,
		instead: "SessionService.DeleteSession", exact: (*Service).closeSession, singleClient: true},
	{method: "sessions.startRemoteControl", why: whyProcess, exact: (*Service).passOn, singleClient: true},
	{method: "sessions.stopRemoteControl", why: whyProcess, exact: (*Service).passOn, singleClient: true},
	{method: "sessions.transferRemoteControl", why: whyProcess, exact: (*Service).passOn, singleClient: true},
	{method: "sessions.setRemoteControlSteering", why: whyProcess, exact: (*Service).passOn, singleClient: true},
	{method: "session.suspend", why: whyStops, instead: "SessionService.DisconnectSession", exact: (*Service).passOn},
	{method: "session.shutdown", why: whyStops,
		instead: "SessionService.DisconnectSession", exact: (*Service).shutDown},
	{method: "session.canvas.provider.", why: whyConn,
		instead: "SessionService.CreateSession with canvases", exact: (*Service).passOn, singleClient: true},
	{method: "session.mcp.registerExternalClient", why: whyConn, exact: (*Service).passOn, singleClient: true},
	{method: "session.mcp.unregisterExternalClient", why: whyConn, exact: (*Service).passOn, singleClient: true},
	{method: "session.ui.registerDirectAutoModeSwitchHandler", why: whyConn,
		instead: "CallbackService.Attach with the kind AUTO_MODE_SWITCH", exact: (*Service).passOn, singleClient: true},
	{method: "session.ui.unregisterDirectAutoModeSwitchHandler", why: whyConn,
		instead: "CallbackService.Attach", exact: (*Service).passOn, singleClient: true},

	{method: "session.create", why: whyLifetime, run: (*Service).create},
	{method: "session.resume", why: whyLifetime, run: (*Service).resume},
	{method: "session.destroy", why: "other participants may still use the session", run: (*Service).disconnect},
	{method: "session.detach", why: "other participants may still use the session", run: (*Service).disconnect},
	{method: "session.delete", why: "the bridge also ends the session's streams and callbacks", run: (*Service).deleteSession},
	{method: "session.getMetadata", why: "the session may be in the history without being open", run: (*Service).forwardServer},
	{method: "sessions.bulkDelete", why: "the bridge also ends the sessions' streams and callbacks",
		run: (*Service).bulkDelete},
	{method: "sessions.pruneOld", why: "the bridge excludes sessions that it has open", run: (*Service).prune},
	{method: "session.send", why: whyTurn, run: (*Service).send},
	{method: "session.sendMessages", why: whyTurn, run: (*Service).send},
	{method: "session.fleet.start", why: whyTurn, run: (*Service).send},
	{method: "session.abort", why: "the bridge also ends the prompts that it would send to the CLI again",
		run: inSession((*Service).abort)},
	{method: "session.tools.set", why: "the CLI has one set of tools; the bridge combines the session's tools and the participants' tools",
		run: inSession((*Service).setTools)},
	{method: "session.model.switchTo", why: whyKept, run: inSession((*Service).switchModel)},
	{method: "session.eventLog.registerInterest", why: "the bridge sends the CLI the union of all interests, and repeats it after each load",
		run: inSession((*Service).registerInterest)},
	{method: "session.eventLog.releaseInterest", why: "a caller may only release an interest that it registered",
		run: inSession((*Service).releaseInterest)},
	{method: "session.eventLog.read", why: whyWait, run: inSession((*Service).readLog)},
	{method: "session.tasks.waitForPending", why: whyWait, run: (*Service).park},
	{method: "session.tasks.readOutput", why: whyWait, run: (*Service).park},
	{method: "session.ui.elicitation", why: whyWait, run: (*Service).park},

	{method: "session.tools.handlePendingToolCall", why: whyAnswer, run: inSession((*Service).answer)},
	{method: "session.permissions.handlePendingPermissionRequest", why: whyAnswer, run: inSession((*Service).answer)},
	{method: "session.ui.handlePendingElicitation", why: whyAnswer, run: inSession((*Service).answer)},
	{method: "session.ui.handlePendingSampling", why: whyAnswer, run: inSession((*Service).answer)},
	{method: "session.ui.handlePendingSessionLimitsExhausted", why: whyAnswer, run: inSession((*Service).answer)},
	{method: "session.commands.handlePendingCommand", why: whyAnswer, run: inSession((*Service).answer)},
	{method: "session.commands.respondToQueuedCommand", why: whyAnswer, run: inSession((*Service).answer)},
	{method: "session.mcp.oauth.handlePendingRequest", why: whyAnswer, run: inSession((*Service).answer)},
	{method: "session.mcp.headers.handlePendingHeadersRefreshRequest", why: whyAnswer, run: inSession((*Service).answer)},
	{method: "session.ui.handlePendingUserInput", why: whyAnswer, run: inSession((*Service).answerRequest)},
	{method: "session.ui.handlePendingExitPlanMode", why: whyAnswer, run: inSession((*Service).answerRequest)},
	{method: "session.ui.handlePendingAutoModeSwitch", why: whyAnswer, run: inSession((*Service).answerRequest)},
}

// sessionless are the methods whose names begin like those about a session, and that are
// about none.
var sessionless = map[string]bool{"session.list": true, "session.getLastId": true, "session.getForeground": true}

// overrideOf returns the row of a method, nil if it has none.
func overrideOf(method string) *methodRule {
	for i := range overrides {
		row := &overrides[i]
		if row.method == method || strings.HasSuffix(row.method, ".") && strings.HasPrefix(method, row.method) {
			return row
		}
	}
	if _, ok := rememberedCalls[method]; ok {
		return &methodRule{method: method, why: whyKept, run: inSession((*Service).apply)}
	}
	return nil
}

// rememberedCalls are the methods whose settings the CLI loses when the session is unloaded, with the rule for
// repeated calls. The rows were measured; their e2e test measures them again.
var rememberedCalls = map[string]settingRule{
	"session.permissions.setApproveAll":            {group: "approveAll"},
	"session.permissions.setMode":                  {group: "permissionMode"},
	"session.permissions.configure":                {group: "permissions", merge: true},
	"session.permissions.modifyRules":              {},
	"session.permissions.resetSessionApprovals":    {group: "resetApprovals"},
	"session.permissions.paths.add":                {},
	"session.permissions.urls.setUnrestrictedMode": {group: "unrestrictedUrls"},
	"session.options.update":                       {group: "options", merge: true},
	"session.mcp.disable":                          {group: "mcp", member: "serverName"},
	"session.mcp.enable":                           {group: "mcp", member: "serverName"},
	"session.mcp.setEnvValueMode":                  {group: "mcpEnv"},
	"session.skills.disable":                       {group: "skill", member: "name"},
	"session.skills.enable":                        {group: "skill", member: "name"},
	"session.agent.select":                         {group: "agent"},
	"session.agent.deselect":                       {group: "agent"},
	"session.model.setReasoningEffort":             {group: "effort"},
	"session.model.setAllowedModels":               {group: "allowedModels"},
	"session.tools.updateSubagentSettings":         {group: "subagents"},
	"session.telemetry.setFeatureOverrides":        {group: "telemetry"},
	"session.provider.add":                         {},
}

// settingRule decides which earlier settings a call replaces: the settings of its group with the same value of
// the member, if it has one. A call without a group replaces none.
type settingRule struct {
	group, member string
	merge         bool
}
