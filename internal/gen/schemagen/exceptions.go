package schemagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/internal/gen/protorules"
)

// Exceptions to the rules, as data. Every row says why it is there; a row that
// matches nothing in the newest set of schemas fails the run.

// exception is a row for a place: a member as message.member, or a method. * stands for any text.
type exception struct {
	Path, Reason string
}

// substitute is an exception that gives the place another name.
type substitute struct {
	Path, To, Reason string
}

// renames give definitions another name.
var renames = []substitute{
	{"ProtocolExternalToolDefinition", "ToolDefinition",
		"the one type of a client's tool, in session.create as in session.tools.set"},
	{"ProtocolExternalToolDefer", "ToolDefer", "belongs to ToolDefinition"},
	{"ProtocolExternalToolNamespace", "ToolNamespace", "belongs to ToolDefinition"},
	{"ProtocolSystemMessageConfig", "SystemMessageAlternative",
		"as a union it is used by provider models only; SystemMessageConfig is the session's"},
}

func renamed(name string) string {
	for _, r := range renames {
		if r.Path == name {
			return r.To
		}
	}
	return name
}

// presences are lists of strings whose emptiness differs from their absence when
// they are sent to the CLI: each gets a message around it, such as StringList.
var presences = []exception{
	{"session.options.update?.*", "a patch: an empty list clears, an absent one keeps"},
	{"McpServerConfigStdio.tools", "an empty list offers no tool, an absent one all"},
	{"McpServerConfigHttp.tools", "an empty list offers no tool, an absent one all"},
	{"McpServerConfigMemory.tools", "an empty list offers no tool, an absent one all"},
}

// nullings are members that the CLI sends as null, though its schema does not allow that.
var nullings = []exception{
	{"AgentGetCurrentResult.agent", "null where no agent is selected, as its description says"},
	{"BuiltinToolDescriptor.hasSummariseIntention", "null where a tool does not say, CLI 1.0.102"},
}

// paramsOverrides replace the parameters of methods by definitions of the overlay.
var paramsOverrides = []substitute{
	{"hooks.invoke", "HookInvocation", "the schema leaves the input opaque; its form follows from the hook type"},
}

// excepted reports whether a row of a table is for a place, and notes that the row was needed.
func (p *planner) excepted(table string, rows []exception, path string) bool {
	found := false
	for _, row := range rows {
		if protorules.Match(row.Path, path) {
			p.hits[table+" "+row.Path] = true
			found = true
		}
	}
	return found
}

// substituted returns what the first row for a place has instead of usual.
func (p *planner) substituted(table string, rows []substitute, path, usual string) string {
	for _, row := range rows {
		if protorules.Match(row.Path, path) {
			p.hits[table+" "+row.Path] = true
			return row.To
		}
	}
	return usual
}

// deadRows fails for rows of exception tables that nothing needed.
func deadRows(m *Model, hits map[string]bool) error {
	var dead []string
	check := func(table, path string) {
		if !hits[table+" "+path] {
			dead = append(dead, table+" "+path)
		}
	}
	for table, rows := range map[string][]exception{"presence": presences, "null": nullings, "secret": secretRows} {
		for _, r := range rows {
			check(table, r.Path)
		}
	}
	for table, rows := range map[string][]substitute{
		"params": paramsOverrides, "member": memberNames, "rpc": rpcNames,
	} {
		for _, r := range rows {
			check(table, r.Path)
		}
	}
	for _, name := range reads {
		check("read", name)
	}
	for _, r := range renames {
		if m.defs[r.To] == nil {
			dead = append(dead, "rename "+r.Path)
		}
	}
	if len(dead) > 0 {
		slices.Sort(dead)
		return fmt.Errorf("exceptions that match nothing: %s", strings.Join(dead, "; "))
	}
	return nil
}
