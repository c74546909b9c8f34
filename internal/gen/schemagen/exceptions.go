package schemagen

// Exceptions to the rules, as data. Every row says why it is there; a row that
// matches nothing in the newest set of schemas fails the run.

// rename gives a definition another name.
type rename struct {
	From, To, Reason string
}

var renames = []rename{
	{"ProtocolExternalToolDefinition", "ToolDefinition",
		"the one type of a client's tool, in session.create as in session.tools.set"},
	{"ProtocolExternalToolDefer", "ToolDefer", "belongs to ToolDefinition"},
	{"ProtocolExternalToolNamespace", "ToolNamespace", "belongs to ToolDefinition"},
	{"ProtocolSystemMessageConfig", "SystemMessageAlternative",
		"as a union it is used by provider models only; SystemMessageConfig is the session's"},
}

func renamed(name string) string {
	for _, r := range renames {
		if r.From == name {
			return r.To
		}
	}
	return name
}

// presence marks a list of strings whose emptiness differs from its absence when
// it is sent to the CLI: it gets a message around it, such as StringList.
type presence struct {
	Path, Reason string // in Path, * stands for any text
}

var presences = []presence{
	{"session.options.update?.*", "a patch: an empty list clears, an absent one keeps"},
	{"McpServerConfigStdio.tools", "an empty list offers no tool, an absent one all"},
	{"McpServerConfigHttp.tools", "an empty list offers no tool, an absent one all"},
	{"McpServerConfigMemory.tools", "an empty list offers no tool, an absent one all"},
}

// nulling is a member that the CLI sends as null, though its schema does not allow that.
type nulling struct {
	Path, Reason string
}

var nullings = []nulling{
	{"AgentGetCurrentResult.agent", "null where no agent is selected, as its description says"},
	{"BuiltinToolDescriptor.hasSummariseIntention", "null where a tool does not say, CLI 1.0.102"},
}

// paramsOverride replaces the parameters of a method by a definition of the overlay.
type paramsOverride struct {
	Method, Def, Reason string
}

var paramsOverrides = []paramsOverride{
	{"hooks.invoke", "HookInvocation", "the schema leaves the input opaque; its form follows from the hook type"},
}
