package schemagen

// reads are the methods that only read, by a review of each: they change neither the session, the CLI, the machine nor
// another server, and do not wait. Their rpcs are marked NO_SIDE_EFFECTS, so that browsers may call them by GET.
// Each has the class "read" in server/policy/methods.txt, which a test checks; that class alone is not enough, because
// observers may also refresh caches and wait for tasks. A row that matches no method fails the run.
var reads = []string{
	"account.getQuota", "auth.getStatus", "commands.list", "models.getBuiltInCatalog", "models.list",
	"models.listTokenPriceUnits", "ping", "session.agent.getCurrent", "session.agent.list",
	"session.autopilotObjective.getState", "session.canvas.list", "session.canvas.listOpen",
	"session.commands.list", "session.completions.getTriggerCharacters", "session.extensions.list",
	"session.factory.getRun", "session.factory.getRunDetail", "session.factory.getRunProgress",
	"session.factory.listRuns", "session.gitHubAuth.getStatus", "session.history.listRewindPoints",
	"session.instructions.getSources", "session.managedSettings.get", "session.mcp.isServerRunning",
	"session.mcp.list", "session.mcp.listConfigured", "session.metadata.activity", "session.metadata.contextInfo",
	"session.metadata.getClientMetadata", "session.metadata.getContextAttribution",
	"session.metadata.getContextHeaviestMessages", "session.metadata.isProcessing", "session.metadata.snapshot",
	"session.mode.get", "session.model.getCurrent", "session.model.getReasoningSummaries", "session.model.list",
	"session.name.get", "session.permissions.getMode", "session.permissions.pendingRequests", "session.plan.read",
	"session.plan.readSqlTodos", "session.plan.readSqlTodosWithDependencies", "session.plugins.list",
	"session.providers.getCatalog", "session.providers.getStatus", "session.providers.models.list",
	"session.queue.pendingItems", "session.quota.get", "session.sandbox.getEnforcementStatus",
	"session.schedule.list", "session.skills.getInvoked", "session.skills.list", "session.tasks.getProgress",
	"session.tasks.list", "session.tasks.readOutput", "session.tools.getCurrentMetadata",
	"session.usage.getMetrics", "session.visibility.get", "session.workflow.getRun",
	"session.workflow.getRunDetail", "session.workflow.getRunProgress", "session.workflow.listRuns",
	"session.workspaces.getWorkspace", "session.workspaces.listCheckpoints",
	"session.workspaces.readAutopilotObjective", "session.workspaces.readCheckpoint", "sessions.getLastForContext",
	"sessions.getRemoteControlStatus", "sessions.getSizes", "sessions.list", "status.get", "tools.list",
}
