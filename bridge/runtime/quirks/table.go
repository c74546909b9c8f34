package quirks

// Quirks that the bridge works around.
var (
	AgentsNeedNames = Quirk{
		Name: "agents-need-names", Until: "1.0.83",
		Why: "The CLI records the description of a selected custom agent, and cannot read the record of an " +
			"agent without display name or tools. The bridge adds both.",
		Test: "TestAgentWithoutDisplayName",
	}
	KeepsPermissions = Quirk{
		Name: "keeps-permissions", Until: "1.0.102",
		Why: "A CLI process that continues pending work waits for each permission without an answer in the record, " +
			"also if its turn was aborted or the session was disconnected. The bridge aborts that.",
		Test: "TestAbortedPermissionStaysEnded",
	}
	LeavesWork = Quirk{
		Name: "leaves-work", Until: "1.0.89",
		Why: "If callers provide a session's files, a new CLI process accepts answers to callbacks of an earlier " +
			"process, but does not continue the turn. The bridge ends the turn.",
		Test: "TestBridgeOfASessionFileSystemIsKilled",
	}
	NoUserShells = Quirk{
		Name: "no-user-shells", Until: "1.0.92",
		Why: "The CLI sends no events about the commands of session.shell.executeUserRequested. The bridge refuses " +
			"RunShell.",
		Test: "TestRunShellNeedsEvents",
	}
)

// Quirks that only tests handle: callers get the CLI's behaviour.
var (
	ReportsSteering = Quirk{
		Name: "reports-steering", Until: "1.0.83",
		Why:  "user.message reports an immediate prompt as delivered by steering; newer versions report it as queued.",
		Test: "TestSessionSendEnqueueAndImmediate",
	}
	AcceptsAnyPort = Quirk{
		Name: "accepts-any-port", Until: "1.0.85",
		Why:  "The flag --port with text listens on any port; newer versions end with an error.",
		Test: "TestShimEndsAsTheCLI",
	}
	IgnoresRepository = Quirk{
		Name: "ignores-repository", Until: "1.0.89",
		Why:  "A headless CLI does not record the repository of a session, so that no session matches a filter by it.",
		Test: "TestSessionListFiltered",
	}
)

// All is the whole table.
var All = []Quirk{AcceptsAnyPort, AgentsNeedNames, KeepsPermissions, LeavesWork, NoUserShells, ReportsSteering, IgnoresRepository}
