package cli

import (
	"strings"
	"testing"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// shellOf is a request for a command line, of which the CLI names the commands as NAME|TEXT.
func shellOf(line string, commands ...string) *cliv1.PermissionRequest {
	req := &cliv1.PermissionRequestShell{FullCommandText: line, ShellType: new("bash")}
	for _, c := range commands {
		name, text, _ := strings.Cut(c, "|")
		req.CommandSegments = append(req.CommandSegments, &cliv1.PermissionRequestShellCommandSegment{
			Identifier: name, FullCommandText: text, AllowMatchIdentifierJson: new("null"),
		})
	}
	return &cliv1.PermissionRequest{Variant: &cliv1.PermissionRequest_Shell{Shell: req}}
}

// changed is a request for a command line with a change.
func changed(req *cliv1.PermissionRequest, change func(*cliv1.PermissionRequestShell)) *cliv1.PermissionRequest {
	change(req.GetShell())
	return req
}

func writeOf(req *cliv1.PermissionRequestWrite) *cliv1.PermissionRequest {
	return &cliv1.PermissionRequest{Variant: &cliv1.PermissionRequest_Write{Write: req}}
}

func urlOf(address string) *cliv1.PermissionRequest {
	return &cliv1.PermissionRequest{Variant: &cliv1.PermissionRequest_Url{Url: &cliv1.PermissionRequestUrl{Url: address}}}
}

func readOf(req *cliv1.PermissionRequestRead) *cliv1.PermissionRequest {
	return &cliv1.PermissionRequest{Variant: &cliv1.PermissionRequest_Read{Read: req}}
}

func mcpOf(server, tool string) *cliv1.PermissionRequest {
	return &cliv1.PermissionRequest{Variant: &cliv1.PermissionRequest_Mcp{
		Mcp: &cliv1.PermissionRequestMcp{ServerName: server, ToolName: tool}}}
}

func customOf(tool string) *cliv1.PermissionRequest {
	return &cliv1.PermissionRequest{Variant: &cliv1.PermissionRequest_CustomTool{
		CustomTool: &cliv1.PermissionRequestCustomTool{ToolName: tool}}}
}

func TestAllowTool(t *testing.T) {
	t.Parallel()
	push := shellOf("git push origin", "git push|git push origin")
	for name, tc := range map[string]struct {
		rules string
		req   *cliv1.PermissionRequest
		want  bool
	}{
		"all commands":              {"shell", shellOf("x > y"), true},
		"no rule":                   {"", push, false},
		"of another kind":           {"write", push, false},
		"a command":                 {"shell(git push)", push, true},
		"a program":                 {"shell(git)", push, false},
		"with all subcommands":      {"shell(git:*)", push, true},
		"a stem is a word":          {"shell(gi:*)", push, false},
		"an end":                    {"shell(push)", push, false},
		"a line":                    {"shell(git push origin)", push, true},
		"the beginning of a line":   {"shell(npm run test:*)", shellOf("npm run test -v", "npm run|npm run test -v"), true},
		"another line":              {"shell(npm run test:*)", shellOf("npm run tests", "npm run|npm run tests"), false},
		"an unparsed line":          {"shell(for)", shellOf("for"), true},
		"an unparsed other line":    {"shell(for:*)", shellOf("for i"), false},
		"two commands":              {"shell(a),shell(b)", shellOf("a x && (b; b y) | a", "a|a x", "b|b", "b|b y", "a|a"), true},
		"one of two":                {"shell(a)", shellOf("a x && b", "a|a x", "b|b"), false},
		"an assignment":             {"shell(a)", shellOf("PATH=/x; a", "a|a"), false},
		"an assignment in front":    {"shell(a)", shellOf("PATH=/x a", "a|PATH=/x a"), false},
		"an assignment of the same": {"shell(a b)", shellOf("x='a b'; a b", "a|a b"), false},
		"a function":                {"shell(a)", shellOf("a() { a; }; a", "a|a", "a|a"), false},
		"a loop":                    {"shell(a)", shellOf("while a; do a; done", "a|a", "a|a"), false},
		"a redirection":             {"shell(a)", shellOf("a > x", "a|a"), false},
		"a redirection in front":    {"shell(a)", shellOf("> x a", "a|> x a"), false},
		"a redirection within":      {"shell(a)", shellOf("a \\\" >| x \\\" \"\"", "a|a \\\" >| x \\\" \"\""), false},
		"to a descriptor":           {"shell(a)", shellOf("a 2>&1 | a >/dev/null 2>&1", "a|a", "a|a"), true},
		"to a file like one":        {"shell(a)", shellOf("a 2>&1x", "a|a"), false},
		"to a file like null":       {"shell(a)", shellOf("a >/dev/nullx", "a|a"), false},
		"to a file beside null":     {"shell(a)", shellOf("a >/dev/null2>&1", "a|a"), false},
		"a quoted redirection":      {"shell(a)", shellOf(`a '=> $(b)' "<x>" \>`, `a|a '=> $(b)' "<x>" \>`), true},
		"a substitution":            {"shell(a)", shellOf("a $(a)", "a|a $(a)", "a|a"), false},
		"a quoted substitution":     {"shell(a)", shellOf(`a "$(a)"`, `a|a "$(a)"`, "a|a"), false},
		"backquotes":                {"shell(a)", shellOf("a `a`", "a|a `a`", "a|a"), false},
		"a process substitution":    {"shell(a)", shellOf("a <(a)", "a|a <(a)", "a|a"), false},
		"a quotation that C has":    {"shell(a)", shellOf(`a $'\'' >| x $'\''`, `a|a $'\'' >| x $'\''`), false},
		"a variable as a command":   {"shell(a)", shellOf("$X a", "$X|$X a"), false},
		"a document":                {"shell(a)", shellOf("a <<E\nb\nE", "a|a"), false},
		"a comment":                 {"shell(a)", shellOf("a # a", "a|a"), false},
		"something that is unknown": {"shell(a)", changed(shellOf("a b", "a|a b"), func(r *cliv1.PermissionRequestShell) { r.CommandSegments[0].HasUnboundExecutableContent = new(true) }), false},
		"another name for rules":    {"shell(git log)", changed(shellOf("git -c x log", "git log|git -c x log"), func(r *cliv1.PermissionRequestShell) { r.CommandSegments[0].AllowMatchIdentifierJson = new(`"git -c"`) }), false},
		"another name, all":         {"shell(git:*)", changed(shellOf("git -c x log", "git log|git -c x log"), func(r *cliv1.PermissionRequestShell) { r.CommandSegments[0].AllowMatchIdentifierJson = new(`"git -c"`) }), true},
		"a name of another form":    {"shell(a)", changed(shellOf("a b", "a|a b"), func(r *cliv1.PermissionRequestShell) { r.CommandSegments[0].AllowMatchIdentifierJson = new("{}") }), false},
		"without a name for rules":  {"shell(a)", changed(shellOf("a b", "a|a b"), func(r *cliv1.PermissionRequestShell) { r.CommandSegments[0].AllowMatchIdentifierJson = nil }), true},
		"another shell":             {"shell(a)", changed(shellOf("a", "a|a"), func(r *cliv1.PermissionRequestShell) { r.ShellType, r.FullCommandText = new("powershell"), "a " }), false},
		"a URL": {"shell(a)", changed(shellOf("a x", "a|a x"), func(r *cliv1.PermissionRequestShell) {
			r.PossibleUrls = []*cliv1.PermissionRequestShellPossibleUrl{{Url: "https://x.org/y"}}
		}), false},
		"a URL that is allowed": {"shell(a),url(x.org)", changed(shellOf("a x", "a|a x"), func(r *cliv1.PermissionRequestShell) {
			r.PossibleUrls = []*cliv1.PermissionRequestShellPossibleUrl{{Url: "https://x.org/y"}}
		}), true},
		"the organisation's demand":  {"shell", changed(shellOf("a", "a|a"), func(r *cliv1.PermissionRequestShell) { r.ManagedApprovalRequired = new(true) }), false},
		"without the sandbox":        {"shell", changed(shellOf("a", "a|a"), func(r *cliv1.PermissionRequestShell) { r.RequestSandboxBypass = new(true) }), false},
		"all writes":                 {"write", writeOf(&cliv1.PermissionRequestWrite{FileName: "/w/a"}), true},
		"a file":                     {"write(/w/a)", writeOf(&cliv1.PermissionRequestWrite{FileName: "/w/b/../a"}), true},
		"the end of a path":          {"write(src/a.go)", writeOf(&cliv1.PermissionRequestWrite{FileName: "/w/src/a.go"}), true},
		"the end of a name":          {"write(a.go)", writeOf(&cliv1.PermissionRequestWrite{FileName: "/w/ba.go"}), false},
		"a link":                     {"write(/w/a)", writeOf(&cliv1.PermissionRequestWrite{FileName: "/w/a", ResolvedPath: new("/etc/a")}), false},
		"a file and another":         {"write(/w/a)", writeOf(&cliv1.PermissionRequestWrite{FileName: "/w/a", FileEdits: []*cliv1.PermissionWriteFileEdit{{After: &cliv1.PermissionWriteFileContent{Path: "/w/a"}}, {Before: &cliv1.PermissionWriteFileContent{Path: "/w/b"}}}}), false},
		"a write out of the sandbox": {"write", writeOf(&cliv1.PermissionRequestWrite{FileName: "/w/a", RequestSandboxBypass: new(true)}), false},
		"all reads":                  {"read", readOf(&cliv1.PermissionRequestRead{Path: "/a"}), true},
		"a read":                     {"read(/a)", readOf(&cliv1.PermissionRequestRead{Path: "/a"}), true},
		"another read":               {"read(/a)", readOf(&cliv1.PermissionRequestRead{Path: "/a", ResolvedPath: new("/b")}), false},
		"all URLs":                   {"url", urlOf("http://x.org"), true},
		"a host":                     {"url(X.org)", urlOf("https://x.org/y?z"), true},
		"a host without TLS":         {"url(x.org)", urlOf("http://x.org"), false},
		"a host with a scheme":       {"url(http://x.org/)", urlOf("http://x.org/y"), true},
		"a host in a host":           {"url(x.org)", urlOf("https://x.org.evil.org"), false},
		"a host as a user":           {"url(x.org)", urlOf("https://x.org@evil.org"), false},
		"hosts":                      {"url(*.x.org)", urlOf("https://a.b.x.org/y"), true},
		"other hosts":                {"url(*.x.org)", urlOf("https://ax.org"), false},
		"an address":                 {"url(x.org/y)", urlOf("https://x.org/y"), true},
		"another address":            {"url(x.org/y)", urlOf("https://x.org/y/z"), false},
		"no address":                 {"url(x.org)", urlOf("https://x.org\\@evil.org"), false},
		"an MCP server":              {"my-mcp", mcpOf("my-mcp", "a"), true},
		"a tool of an MCP server":    {"my-mcp(a)", mcpOf("my-mcp", "a"), true},
		"another tool":               {"my-mcp(a)", mcpOf("my-mcp", "ab"), false},
		"an MCP server like a kind":  {"shell", mcpOf("shell", "a"), false},
		"a program's tool":           {"get_weather", customOf("get_weather"), true},
		"another program's tool":     {"get_weather", customOf("get"), false},
		"a tool like a kind":         {"write", customOf("write"), false},
		"something else":             {"shell,write,read,url", &cliv1.PermissionRequest{Variant: &cliv1.PermissionRequest_Hook{Hook: &cliv1.PermissionRequestHook{ToolName: "write"}}}, false},
		"nothing":                    {"shell,write,read,url", nil, false},
	} {
		var rules toolRules
		if err := rules.Set(tc.rules); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := rules.allow(tc.req); got != tc.want {
			t.Errorf("%s: %s: allowed is %v", name, tc.rules, got)
		}
	}
}

func TestToolRules(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		" shell(git:*) , write": "shell(git:*),write", "shell(a, b)": "shell(a, b)", "My MCP(a)": "My MCP(a)",
		"shell(a (b))": "shell(a (b))", "": "",
	} {
		var rules toolRules
		if err := rules.Set(text); err != nil || rules.String() != want {
			t.Errorf("%q: %q, %v", text, rules.String(), err)
		}
	}
	for _, text := range []string{"shell(", "shell()", "(a)", "shell)a(", "shell(a)b", "shell(a),shell("} {
		if err := new(toolRules).Set(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
