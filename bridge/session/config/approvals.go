package config

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
)

// The CLI forgets approvals for the rest of a session when no process has the session. The bridge stores each
// as a setting: the rule with the same meaning. The CLI itself defines these rules for approvals of a location
// (session.permissions.locations.apply); approvals of a session have the same form.

// modifyRules is the method that adds rules to a session.
const modifyRules = "session.permissions.modifyRules"

// ruleKinds are the kinds of rules other than the name of an MCP server. An MCP server with such a name cannot
// have a rule.
var ruleKinds = []string{
	"commands", "custom-tool", "extension-env-access", "extension-management", "extension-permission-access", "factory",
	"hook", "mcp", "mcp-sampling", "memory", "path", "read", "shell", "url", "workflow", "write",
}

// rule is a rule of the CLI's permissions.
type rule struct {
	Kind     string  `json:"kind"`
	Argument *string `json:"argument"`
}

// rulesOf returns the rules that allow exactly as much as an approval, or none if no such rules are known.
// Without a rule the CLI asks again, which is safer than a rule that allows more.
func rulesOf(approval jsonobj.Object) []rule {
	kind := approval.String("kind")
	switch kind {
	case "commands":
		return commandRules(approval.Get("commandIdentifiers"))
	case "read", "write", "memory":
		return []rule{{Kind: kind}}
	case "mcp":
		server := approval.String("serverName")
		if server == "" || slices.ContainsFunc(ruleKinds, func(k string) bool { return strings.EqualFold(k, server) }) || approval.Get("toolName") == nil {
			return nil
		}
		return ruleFor(server, approval.Get("toolName")) // null is all of its tools
	case "custom-tool":
		return narrowed(kind, approval.Get("toolName"))
	case "mcp-sampling":
		return narrowed(kind, approval.Get("serverName"))
	case "extension-permission-access":
		return narrowed(kind, approval.Get("extensionName"))
	case "extension-management": // of every operation, where none is named
		return ruleFor(kind, approval.Get("operation"))
	case "workflow", "factory": // of all, where none is named
		return ruleFor(kind, approval.Get("approvalKey"))
	case "extension-env-access":
		return environmentRule(approval)
	}
	return nil
}

// commandRules returns the rules for exact commands.
func commandRules(identifiers json.RawMessage) (out []rule) {
	var names []string
	if json.Unmarshal(identifiers, &names) != nil {
		return nil
	}
	for i, name := range names {
		if name == "" || strings.HasSuffix(name, ":*") { // which would be all that begin so
			return nil
		}
		out = append(out, rule{"shell", &names[i]})
	}
	return out
}

// narrowed is the rule of a kind with an argument that has to be there.
func narrowed(kind string, argument json.RawMessage) []rule {
	if argument == nil || string(argument) == "null" {
		return nil
	}
	return ruleFor(kind, argument)
}

// ruleFor is the rule of a kind with an argument, or with none where that is absent or null.
func ruleFor(kind string, argument json.RawMessage) []rule {
	r := rule{Kind: kind}
	if argument != nil && (json.Unmarshal(argument, &r.Argument) != nil || r.Argument != nil && *r.Argument == "") {
		return nil
	}
	return []rule{r}
}

// environmentRule is that of an extension's variables: the names in order, each once.
func environmentRule(approval jsonobj.Object) []rule {
	argument := struct {
		Version              int      `json:"version"`
		ExtensionName        string   `json:"extensionName"`
		EnvironmentVariables []string `json:"environmentVariables"`
	}{Version: 1, ExtensionName: approval.String("extensionName")}
	err := json.Unmarshal(approval.Get("environmentVariables"), &argument.EnvironmentVariables)
	if err != nil || argument.ExtensionName == "" || len(argument.EnvironmentVariables) == 0 {
		return nil
	}
	slices.Sort(argument.EnvironmentVariables)
	argument.EnvironmentVariables = slices.Compact(argument.EnvironmentVariables)
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // as the CLI writes it
	if e.Encode(argument) != nil {
		return nil
	}
	written := strings.TrimSpace(text.String())
	return []rule{{"extension-env-access", &written}}
}

// ApprovalsIn are the rules for what a permission's end approves for the rest of the session.
func ApprovalsIn(rec *journal.Record) []Setting {
	var d struct {
		Result struct {
			Kind     string
			Approval json.RawMessage
		}
	}
	if !event.Data(rec, &d) || d.Result.Kind != "approved-for-session" {
		return nil
	}
	approval, err := jsonobj.Parse(d.Result.Approval)
	if err != nil {
		return nil
	}
	var out []Setting
	for _, r := range rulesOf(approval) {
		out = append(out, r.setting())
	}
	return out
}

// ApprovedURLs is the rule for the domain of URLs that an answer approves for the rest of the
// session: the permission's end does not tell it.
func ApprovedURLs(p *callback.Pending, answer callback.Reply) []Setting {
	domain, ok := approvedDomain(p, answer)
	if !ok {
		return nil
	}
	return []Setting{rule{"url", &domain}.setting()}
}

// approvedDomain is the domain of URLs that an answer approves for the rest of the session.
func approvedDomain(p *callback.Pending, answer callback.Reply) (domain string, ok bool) {
	if p.Kind.Method != callback.PermissionRequested || answer.Error != nil {
		return "", false
	}
	var asked struct{ PromptRequest struct{ Kind string } }
	var given struct{ Result struct{ Kind, Domain string } }
	if json.Unmarshal(p.Params, &asked) != nil || json.Unmarshal(answer.Members, &given) != nil || asked.PromptRequest.Kind != "url" {
		return "", false
	}
	switch given.Result.Kind {
	case "approve-for-session", "approve-permanently": // the headless CLI forgets both with its process
		return given.Result.Domain, given.Result.Domain != ""
	}
	return "", false
}

// setting is the call that adds a rule.
func (r rule) setting() Setting {
	text, _ := json.Marshal([]rule{r}) // strings always encode
	var params jsonobj.Object
	params.SetString("scope", "session")
	params.Set("add", text)
	return Setting{"approval " + string(text), modifyRules, params}
}
