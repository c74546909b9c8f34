package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// toolRule is a rule of --allow-tool, as the Copilot CLI's own flag has them: KIND or KIND(ARGUMENT).
type toolRule struct{ kind, argument string }

// String is the rule as it is typed.
func (r toolRule) String() string {
	if r.argument == "" {
		return r.kind
	}
	return r.kind + "(" + r.argument + ")"
}

// toolRules are the rules of a run. What is in doubt they do not allow.
//
// The rules are applied here and not by the CLI (session.permissions.modifyRules): those of the CLI stay in the session
// after the run, and for sessions of its server they compare a command line as a whole, so that shell(git:*) also
// allows "git log; rm x".
type toolRules []toolRule

func (r *toolRules) String() string {
	texts := make([]string, len(*r))
	for i, rule := range *r {
		texts[i] = rule.String()
	}
	return strings.Join(texts, ",")
}

func (*toolRules) Type() string { return "rules" }

// rule is the form of a rule: commas separate rules, except within parentheses.
var rule = regexp.MustCompile(`^\s*([^\s(),][^(),]*?)\s*(?:\((.+)\))?\s*$`)

func (r *toolRules) Set(text string) error {
	depth := 0
	parts := strings.FieldsFunc(text, func(c rune) bool {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		return c == ',' && depth == 0
	})
	for _, part := range parts {
		found := rule.FindStringSubmatch(part)
		if found == nil {
			return fmt.Errorf("want KIND or KIND(ARGUMENT), such as write or 'shell(git:*)', not %q", part)
		}
		*r = append(*r, toolRule{found[1], strings.TrimSpace(found[2])})
	}
	return nil
}

// allow reports whether the rules allow what the agent asks for.
func (r toolRules) allow(req *cliv1.PermissionRequest) bool {
	switch v := req.GetVariant().(type) {
	case *cliv1.PermissionRequest_Shell:
		return !needsPerson(v.Shell) && r.allowShell(v.Shell)
	case *cliv1.PermissionRequest_Write:
		return !needsPerson(v.Write) && r.allowWrite(v.Write)
	case *cliv1.PermissionRequest_Read:
		return !needsPerson(v.Read) && r.match("read", isFile, cmp.Or(v.Read.GetResolvedPath(), v.Read.GetPath()))
	case *cliv1.PermissionRequest_Url:
		return !needsPerson(v.Url) && r.match("url", isAddress, v.Url.GetUrl())
	case *cliv1.PermissionRequest_Mcp:
		name := v.Mcp.GetServerName()
		return !slices.Contains(kinds, name) && r.match(name, isSame, v.Mcp.GetToolName())
	case *cliv1.PermissionRequest_CustomTool:
		name := v.CustomTool.GetToolName()
		return !slices.Contains(kinds, name) && slices.Contains(r, toolRule{kind: name})
	}
	return false
}

// kinds are the kinds of rules that are no name of an MCP server or of a tool.
var kinds = []string{"shell", "write", "read", "url"}

// match reports whether a rule of a kind has no argument, or one that fits a value.
func (r toolRules) match(kind string, fits func(argument, value string) bool, value string) bool {
	return slices.ContainsFunc(r, func(rule toolRule) bool {
		return rule.kind == kind && (rule.argument == "" || fits(rule.argument, value))
	})
}

// needsPerson reports whether a request is for a person: the organisation's settings demand one, or it leaves the
// sandbox.
func needsPerson(req interface {
	GetManagedApprovalRequired() bool
	GetRequestSandboxBypass() bool
}) bool {
	return req.GetManagedApprovalRequired() || req.GetRequestSandboxBypass()
}

func isSame(argument, value string) bool { return argument == value }

// isFile reports whether an absolute path is the file, or a relative one its last elements.
func isFile(argument, file string) bool {
	argument, file = path.Clean(argument), path.Clean(file)
	if path.IsAbs(argument) {
		return argument == file
	}
	return strings.HasSuffix("/"+file, "/"+argument)
}

// isAddress reports whether a URL is the argument, or has its scheme and host. The host may begin with "*.", and the
// scheme is https if there is none.
func isAddress(argument, address string) bool {
	if !strings.Contains(argument, "://") {
		argument = "https://" + argument
	}
	want, err := url.Parse(argument)
	got, errGot := url.Parse(address)
	switch {
	case err != nil || errGot != nil || want.Scheme != got.Scheme:
		return false
	case strings.Trim(want.Path, "/") != "" || want.RawQuery != "":
		return want.String() == got.String()
	case strings.HasPrefix(want.Host, "*."):
		return strings.HasSuffix(strings.ToLower(got.Host), strings.ToLower(want.Host[1:]))
	}
	return strings.EqualFold(want.Host, got.Host)
}

// allowWrite reports whether all files that a request writes are allowed.
func (r toolRules) allowWrite(req *cliv1.PermissionRequestWrite) bool {
	files := []string{cmp.Or(req.GetResolvedPath(), req.GetFileName())}
	for _, edit := range req.GetFileEdits() {
		for _, side := range []*cliv1.PermissionWriteFileContent{edit.GetBefore(), edit.GetAfter()} {
			if file := side.GetPath(); file != "" && file != req.GetFileName() {
				files = append(files, file)
			}
		}
	}
	return !slices.ContainsFunc(files, func(file string) bool { return !r.match("write", isFile, file) })
}

var (
	// separators are all that may be left of a command line without its commands: what joins them, and redirections
	// that write no file.
	separators = regexp.MustCompile(`^(?:[\s;&|()]|(?:[0-9]?>&[0-9]|[0-9]?&?>>?\s*/dev/null)(?:[\s;&|()]|$))*$`)
	// quoted are parts of a command in which a shell substitutes nothing.
	quoted = regexp.MustCompile("(?s)\\\\.|'[^']*'|\"(?:[^\"\\\\$`]|\\\\.)*\"")
)

// allowShell reports whether each command of a command line is allowed. Other parts of it, such as assignments,
// redirections and substitutions, could make more of an allowed command: lines with those need a rule with the whole
// line, or for all commands.
func (r toolRules) allowShell(req *cliv1.PermissionRequestShell) bool {
	line := req.GetFullCommandText()
	if slices.ContainsFunc(r, func(rule toolRule) bool {
		return rule.kind == "shell" && (rule.argument == "" || rule.argument == line)
	}) {
		return true
	}
	for _, address := range req.GetPossibleUrls() {
		if !r.match("url", isAddress, address.GetUrl()) {
			return false
		}
	}
	if shell := req.GetShellType(); shell != "" && shell != "bash" && shell != "sh" || len(req.GetCommandSegments()) == 0 {
		return false
	}
	for _, command := range req.GetCommandSegments() {
		if !r.allowCommand(command) {
			return false
		}
		line = strings.Replace(line, command.GetFullCommandText(), " ", 1)
	}
	return separators.MatchString(line)
}

// allowCommand reports whether a command of a command line is allowed.
func (r toolRules) allowCommand(c *cliv1.PermissionRequestShellCommandSegment) bool {
	text, name := c.GetFullCommandText(), c.GetIdentifier()
	var other *string // for options that make another command of it, such as git -c
	if err := json.Unmarshal([]byte(cmp.Or(c.GetAllowMatchIdentifierJson(), "null")), &other); err != nil {
		return false
	}
	if other != nil {
		name = *other
	}
	bare := quoted.ReplaceAllString(text, `""`)
	if c.GetHasUnboundExecutableContent() || strings.ContainsAny(bare, "<>`") || strings.Contains(bare, "$(") ||
		strings.Contains(text, "$'") || !isCommand(text, strings.SplitN(name, " ", 2)[0]) {
		return false
	}
	return slices.ContainsFunc(r, func(rule toolRule) bool {
		stem, any := strings.CutSuffix(rule.argument, ":*")
		return rule.kind == "shell" && (name == stem || text == stem || any && (isCommand(name, stem) || isCommand(text, stem)))
	})
}

// isCommand reports whether a command begins with words.
func isCommand(text, words string) bool { return text == words || strings.HasPrefix(text, words+" ") }
